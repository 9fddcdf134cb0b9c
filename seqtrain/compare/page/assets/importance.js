// Which option mattered in a search: what the conclusion's own runs say of it, computed when the page was made.

function importanceRow(option) {
  const row = make("tr"), name = make("th", option.key, { scope: "row" });
  name.append(make("small", counted(option.values, "value")));
  const cell = make("td", null, { className: option.by_chance ? "chance" : "" });
  const bar = make("div", null, { className: "bar" }), fill = make("i");
  fill.style.width = `${100 * option.share}%`;
  bar.append(fill);
  cell.append(bar, make("span", `${(100 * option.share).toFixed(0)} %`));
  if (option.by_chance) cell.append(make("small", "not told apart from chance"));
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
  words.push("Functional ANOVA: the share of what a random forest has learnt of these runs that goes with one option alone; what options do together belongs to none. Not told apart from chance: random numbers in place of an option explain half as much or more. It speaks of the values that were tried, not of others.");
  return words.join(" ");
}
