// Which option matters: what the conclusion's own runs say of it, reckoned when the page was made.

/* A cell of a share: its bar, the number, and what is said of it. */
function shareCell(share, words, className = "") {
  const made = make("td", null, { className });
  if (share !== null) {
    const bar = make("div", null, { className: "bar" }), fill = make("i");
    fill.style.width = `${100 * share}%`;
    bar.append(fill);
    made.append(bar, make("span", `${(100 * share).toFixed(0)} %`));
  }
  if (words) made.append(make("small", words));
  return made;
}

function importanceRow(option, hasForest) {
  const row = make("tr"), name = make("th", option.key, { scope: "row" });
  name.append(make("small", counted(option.values, "value") + (option.levels < option.values ? ` in ${option.levels} bins` : "")));
  const chance = option.epsilon === null ? "cannot be told" : option.by_chance ? "not told apart from chance" : "";
  row.append(name, shareCell(option.epsilon, chance, option.by_chance ? "chance" : ""));
  if (hasForest) row.append(shareCell(option.fanova, option.fanova === null ? "not all runs have it" : ""));
  return row;
}

function showImportance() {
  const group = data.groups[chosen.group], found = group.importance, hasForest = found.predicted !== null;
  const top = make("thead"), head = make("tr"), body = make("tbody");
  const titles = ["option", "epsilon squared", ...(hasForest ? ["functional ANOVA"] : [])];
  head.append(...titles.map(words => make("th", words, { scope: "col" })));
  top.append(head);
  body.append(...found.options.map(option => importanceRow(option, hasForest)));
  at("importance-table").replaceChildren(...(found.options.length ? [top, body] : []));
  at("importance-note").textContent = importanceNote(group, found);
}

function importanceNote(group, found) {
  if (group.refused) return "Of runs that are not compared nothing is said: see above.";
  const where = data.equal ? `, ${data.equal} as in the conclusion` : "";
  const words = [`By the ${data.which} ${named(group.metric)} of the ${counted(found.runs, "run")} that count${found.runs === 1 ? "s" : ""} in the conclusion${where}; the filter changes nothing here.`];
  if (found.pruned) words.push(`${counted(found.pruned, "run")} that the search pruned ${found.pruned === 1 ? "is" : "are"} not among them: they were the bad ones, so what is left differs less than what was tried.`);
  words.push("Epsilon squared: the share of the variance that goes with one option alone (one-way analysis of variance; numbers of many values are cut into four bins). It sees no interaction, and options that were changed together share their credit. Not told apart from chance: by the F test at 5 % over all options at once.");
  if (found.predicted !== null) words.push(`Functional ANOVA: the share of what a random forest has learnt of these runs that goes with one option alone; what options do together belongs to none. The forest predicts ${(100 * found.predicted).toFixed(0)} % of the variance of runs that it has not seen.`);
  words.push(...found.notes.map(note => note + "."), `${found.predicted === null ? "It speaks" : "Both speak"} of the values that were tried, not of others.`);
  return words.join(" ");
}
