// The conclusion: what is said of each group of runs.

const MOST_SENTENCES = 10; // of one kind, before the rest is folded

function showGroups() {
  at("groups").replaceChildren(...data.groups.map((group, index) => {
    const current = data.groups.length > 1 && index === chosen.group;
    const made = make("article", null, { className: current ? "current" : "" });
    const title = data.groups.length > 1 ? `Group ${index + 1}: ` : "", better = group.mode === "max" ? "more" : "less";
    made.append(make("h3", `${title}${counted(group.runs.length, "run")} in ${counted(group.variants.length, "variant")}, by ${named(group.metric)} of validation (${better} is better)`));
    if (group.reason.length) made.append(make("p", "Apart from group 1: " + group.reason.join("; "), { className: "apart" }));
    made.append(...folded(group.verdict, sentences), ...folded(group.notes, remarks), ...folded(group.remarks, remarks));
    return made;
  }), ...folded(data.missing, remarks));
}

/* The first of them as `shown` makes them, and the rest where a press unfolds it. */
function folded(all, shown) {
  const rest = all.slice(MOST_SENTENCES), made = make("details");
  made.append(make("summary", `${rest.length} more`), shown(rest));
  return [shown(all.slice(0, MOST_SENTENCES)), ...(rest.length ? [made] : [])];
}

function remarks(all) {
  const made = make("div");
  made.append(...all.map(words => make("p", words, { className: "apart" })));
  return made;
}

function sentences(all) {
  const list = make("ul");
  list.append(...all.map(sentence => make("li", sentence, { className: sentence.startsWith("not shown") ? "" : "shown" })));
  return list;
}
