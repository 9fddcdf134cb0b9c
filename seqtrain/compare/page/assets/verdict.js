// The conclusion: what a reader asks first of each group of runs, and what is said of it.

const FEW_GROUPS = 3;
const MOST_SENTENCES = 10, MOST_GOING = 5, MOST_REMARKS = 3; // of one kind, before the rest is folded

function showGroups() {
  at("conclusion-title").textContent = data.runs.length === 1 ? "This run" : "Conclusion";
  at("groups").classList.toggle("listed", data.groups.length > FEW_GROUPS); // then only the chosen one is shown
  at("groups").replaceChildren(...data.groups.map((group, index) => {
    const why = [group.reason.length ? "Apart from group 1: " + group.reason.join("; ") : "", group.remedy].filter(Boolean);
    const above = [make("h3", groupTitle(group, index)), ...apart(why), ...group.first.map(words => make("p", words, { className: "first" }))];
    if (index === chosen.group) {
      return make("article", [...above, answers(group.answers), ...more(group)], { className: data.groups.length > 1 ? "current" : "" });
    }
    // Of the other groups the first line is enough, so that the table of this one stands near.
    return make("article", [...above, answers(group.answers.slice(0, 1)), under("more of this group", [answers(group.answers.slice(1)), ...more(group)])]);
  }), ...folded(data.missing, remarks));
}

/* What stands below the answers of a group. */
function more(group) {
  const made = [...going(group), ...folded([...group.notes, ...group.caveats], remarks, MOST_REMARKS)];
  made.push(under(`The verdict in ${counted(group.verdict.length, "sentence")}`, folded(group.verdict, sentences)));
  if (group.remarks.length) made.push(under(`${counted(group.remarks.length, "remark")} on runs that are not counted`, folded(group.remarks, remarks)));
  return made;
}

function groupTitle(group, index) {
  const title = data.groups.length > 1 ? `Group ${index + 1}: ` : "", better = group.mode === "max" ? "more" : "less";
  if (group.runs.length === 1) return title + data.runs[group.runs[0]].name;
  return `${title}${counted(group.runs.length, "run")} in ${counted(group.variants.length, "variant")}, by ${named(group.metric)} of validation (${better} is better)`;
}

function answers(known) {
  return make("dl", known.flatMap(([question, answer]) => [make("dt", question), make("dd", answer)]), { className: "answers" });
}

/* Runs that go on or ended early: how far, how fast, why, and what goes on with them. */
function going(group) {
  const open = group.runs.map(index => data.runs[index]).filter(run => run.status !== "finished");
  return open.length ? folded(open, goingTable, MOST_GOING) : [];
}

function goingTable(runs) {
  const rows = runs.map(run => {
    const how = run.status + (run.reason ? `: ${run.reason}` : ""), share = run.progress?.share;
    const bar = isKnown(share) ? [make("progress", null, { max: 1, value: share, "aria-label": "progress of " + run.name }), " "] : [];
    return tableRow([
      run.name, make("td", how, run.status === "failed" ? { className: "status-failed" } : {}),
      [...bar, run.words || "nothing recorded yet"], run.resume ? [make("code", run.resume)] : "",
    ]);
  });
  const head = tableHead(["unfinished run", "status", "progress", "continue with"]);
  return make("table", [head, make("tbody", rows)], { className: "going" });
}

/* Links to what lies beside the page; their addresses are made of quoted relative paths alone. */
function fileLinks(run) {
  return Object.entries(run.links).flatMap(([name, address]) => {
    if (!address.startsWith("./")) return [];
    return [make("a", name, { href: address, target: "_blank", rel: "noopener noreferrer", "aria-label": `${name} of ${run.name}` }), " "];
  });
}

const under = (title, content) => make("details", [make("summary", title), ...content]);

/* The first of them as `shown` makes them, and the rest where a press unfolds it. */
function folded(all, shown, most = MOST_SENTENCES) {
  const rest = all.slice(most);
  return all.length ? [shown(all.slice(0, most)), ...(rest.length ? [under(`${rest.length} more`, [shown(rest)])] : [])] : [];
}

const apart = all => all.map(words => make("p", words, { className: "apart" }));
const remarks = all => make("div", apart(all));
const sentences = all => make("ul", all.map(sentence => make("li", sentence, { className: /^no (significant|conclusion)/.test(sentence) ? "" : "shown" })));

// Which option mattered in a search: what the conclusion's own runs say of it, computed when the page was made.

function importanceRow(option) {
  const fill = make("i"), chance = option.by_chance ? make("small", "no more than chance") : null;
  fill.style.width = `${100 * option.share}%`;
  const bar = make("div", fill, { className: "bar" }), share = make("span", `${(100 * option.share).toFixed(0)} %`);
  return tableRow([[option.key, make("small", counted(option.values, "value"))], make("td", [bar, share, chance], { className: chance ? "chance" : "" })]);
}

function showImportance() {
  const group = data.groups[chosen.group], found = group.importance;
  const body = make("tbody", found.options.map(importanceRow));
  at("importance-table").replaceChildren(...(found.options.length ? [tableHead(["option", "functional ANOVA"]), body] : []));
  at("importance-note").textContent = found.options.length ? importanceNote(group, found) : found.note;
}

function importanceNote(group, found) {
  const where = data.equal ? `, ${data.equal} as in the conclusion` : "";
  const words = [`By the ${data.which} ${named(group.metric)} of the ${counted(found.runs, "run")} that count in the conclusion${where}; the filter does not change this table.`];
  if (found.pruned) words.push(`${counted(found.pruned, "run")} that the search pruned ${found.pruned === 1 ? "is" : "are"} not among them. They were the worst ones, so the remaining runs differ less than all that were tried.`);
  words.push("Functional ANOVA: a random forest is fitted to these runs; the share is the part of its variance that one option explains alone. Effects of combined options belong to no option. No more than chance: random numbers in place of the option explain at least half as much. The result holds only for the values that were tried.");
  return words.join(" ");
}
