// The conclusion: what a reader asks first of each group of runs, and what is said of it.

const FEW_GROUPS = 3;
const MOST_SENTENCES = 10, MOST_GOING = 5, MOST_REMARKS = 3; // of one kind, before the rest is folded

function showGroups() {
  at("conclusion-title").textContent = data.runs.length === 1 ? "This run" : "Conclusion";
  at("groups").classList.toggle("listed", data.groups.length > FEW_GROUPS); // then only the chosen one is shown
  at("groups").replaceChildren(...data.groups.map((group, index) => {
    const current = data.groups.length > 1 && index === chosen.group, first = index === chosen.group;
    const made = make("article", null, { className: current ? "current" : "" });
    made.append(make("h3", groupTitle(group, index)));
    if (group.reason.length) made.append(make("p", "Apart from group 1: " + group.reason.join("; "), { className: "apart" }));
    if (group.remedy) made.append(make("p", group.remedy, { className: "apart" }));
    made.append(...group.first.map(words => make("p", words, { className: "first" })));
    // Of the other groups the first line is enough, so that the table of this one stands near.
    made.append(answers(first ? group.answers : group.answers.slice(0, 1)));
    if (first) made.append(...more(group));
    else made.append(under("more of this group", [answers(group.answers.slice(1)), ...more(group)]));
    return made;
  }), ...folded(data.missing, remarks));
}

/* What stands below the answers of a group. */
function more(group) {
  const made = [...going(group), ...folded([...group.notes, ...group.caveats], remarks, MOST_REMARKS)];
  made.push(under(`The verdict in ${counted(group.verdict.length, "sentence")}`, folded(group.verdict, sentences)));
  if (group.remarks.length) made.push(under(`${counted(group.remarks.length, "remark")} on runs that do not count`, folded(group.remarks, remarks)));
  return made;
}

function groupTitle(group, index) {
  const title = data.groups.length > 1 ? `Group ${index + 1}: ` : "", better = group.mode === "max" ? "more" : "less";
  if (group.runs.length === 1) return title + data.runs[group.runs[0]].name;
  return `${title}${counted(group.runs.length, "run")} in ${counted(group.variants.length, "variant")}, by ${named(group.metric)} of validation (${better} is better)`;
}

function answers(known) {
  const made = make("dl", null, { className: "answers" });
  for (const [question, answer] of known) made.append(make("dt", question), make("dd", answer));
  return made;
}

/* Runs that go on or ended early: how far, how fast, why, and what goes on with them. */
function going(group) {
  const open = group.runs.map(index => data.runs[index]).filter(run => run.status !== "finished");
  return open.length ? folded(open, goingTable, MOST_GOING) : [];
}

function goingTable(runs) {
  const made = make("table", null, { className: "going" }), body = make("tbody"), top = make("thead"), head = make("tr");
  head.append(...["run that has not finished", "status", "progress", "go on with"].map(words => make("th", words, { scope: "col" })));
  top.append(head);
  body.append(...runs.map(run => {
    const row = make("tr"), how = make("td", run.status + (run.reason ? `: ${run.reason}` : "")), far = make("td", null), next = make("td", null);
    if (run.status === "failed") how.className = "status-failed";
    if (run.progress?.share !== undefined && run.progress?.share !== null) {
      const bar = make("progress", null, { max: 1, value: run.progress.share });
      bar.setAttribute("aria-label", "progress of " + run.name);
      far.append(bar, " ");
    }
    far.append(run.words || "nothing recorded yet");
    if (run.resume) next.append(make("code", run.resume));
    row.append(make("th", run.name, { scope: "row" }), how, far, next);
    return row;
  }));
  made.append(top, body);
  return made;
}

/* Links to what lies beside the page; their addresses are made of quoted relative paths alone. */
function fileLinks(run) {
  return Object.entries(run.links).flatMap(([name, address]) => {
    if (!address.startsWith("./")) return [];
    const made = make("a", name, { href: address, target: "_blank", rel: "noopener noreferrer" });
    made.setAttribute("aria-label", `${name} of ${run.name}`);
    return [made, " "];
  });
}

function under(title, content) {
  const made = make("details");
  made.append(make("summary", title), ...content);
  return made;
}

/* The first of them as `shown` makes them, and the rest where a press unfolds it. */
function folded(all, shown, most = MOST_SENTENCES) {
  const rest = all.slice(most);
  return all.length ? [shown(all.slice(0, most)), ...(rest.length ? [under(`${rest.length} more`, [shown(rest)])] : [])] : [];
}

function remarks(all) {
  const made = make("div");
  made.append(...all.map(words => make("p", words, { className: "apart" })));
  return made;
}

function sentences(all) {
  const list = make("ul");
  list.append(...all.map(sentence => make("li", sentence, { className: /^no (significant|conclusion)/.test(sentence) ? "" : "shown" })));
  return list;
}

// Which option mattered in a search: what the conclusion's own runs say of it, computed when the page was made.

function importanceRow(option) {
  const row = make("tr"), name = make("th", option.key, { scope: "row" });
  name.append(make("small", counted(option.values, "value")));
  const cell = make("td", null, { className: option.by_chance ? "chance" : "" });
  const bar = make("div", null, { className: "bar" }), fill = make("i");
  fill.style.width = `${100 * option.share}%`;
  bar.append(fill);
  cell.append(bar, make("span", `${(100 * option.share).toFixed(0)} %`));
  if (option.by_chance) cell.append(make("small", "no more than chance"));
  row.append(name, cell);
  return row;
}

function showImportance() {
  const group = data.groups[chosen.group], found = group.importance;
  const top = make("thead"), head = make("tr"), body = make("tbody");
  head.append(...["option", "functional ANOVA"].map(words => make("th", words, { scope: "col" })));
  top.append(head);
  body.append(...found.options.map(importanceRow));
  at("importance-table").replaceChildren(...(found.options.length ? [top, body] : []));
  at("importance-note").textContent = found.options.length ? importanceNote(group, found) : found.note;
}

function importanceNote(group, found) {
  const where = data.equal ? `, ${data.equal} as in the conclusion` : "";
  const words = [`By the ${data.which} ${named(group.metric)} of the ${counted(found.runs, "run")} that count in the conclusion${where}; the filter changes nothing here.`];
  if (found.pruned) words.push(`${counted(found.pruned, "run")} that the search pruned ${found.pruned === 1 ? "is" : "are"} not among them: they were the bad ones, so what is left differs less than what was tried.`);
  words.push("Functional ANOVA: the share of what a random forest has learnt of these runs that goes with one option alone; what options do together belongs to none. No more than chance: random numbers in place of an option explain half as much or more. It speaks of the values that were tried, not of others.");
  return words.join(" ");
}
