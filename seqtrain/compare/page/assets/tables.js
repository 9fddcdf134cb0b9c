// The tables and texts: conclusion, variants, runs, samples, configurations, environment.

const MOST_PICKS = 4; // runs that are shown side by side before the reader chooses

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

function swatch(variant) {
  const look = style(variant) || { color: ink("rest"), dash: "solid" };
  const gaps = { solid: "", dash: "6 3", dot: "2 3", dashdot: "7 3 2 3" }[look.dash];
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("viewBox", "0 0 30 14");
  made.setAttribute("class", "swatch");
  made.setAttribute("aria-hidden", "true");
  const shapes = {
    circle: "M15 3a4 4 0 1 0 .01 0Z", square: "M11 3h8v8h-8Z", diamond: "M15 2l5 5-5 5-5-5Z", "triangle-up": "M15 2l5 9h-10Z",
    x: "M11 4l1-1 3 3 3-3 1 1-3 3 3 3-1 1-3-3-3 3-1-1 3-3Z", star: "M15 1.5l1.6 3.7 4 .4-3 2.7.9 4-3.5-2.1-3.5 2.1.9-4-3-2.7 4-.4Z",
  };
  for (const [d, how] of [["M1 7H29", { stroke: look.color, "stroke-width": 2.2, "stroke-dasharray": gaps }], [shapes[look.symbol], { fill: look.color }]]) {
    if (!d) continue;
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", d);
    for (const [name, value] of Object.entries(how)) path.setAttribute(name, value);
    made.append(path);
  }
  return made;
}

function showArms() {
  const variants = armsOf(filtered()), styled = variants.filter(variant => style(variant.name));
  const chips = styled.map(variant => {
    const value = variant.mean === null ? "" : ` ${told(variant.mean)}`;
    const spread = variant.interval ? ` (95 % interval ${told(variant.interval[0])} to ${told(variant.interval[1])} over ${variant.seeds} seeds)` : "";
    const made = make("button", null, { type: "button", "aria-pressed": !chosen.hidden.includes(variant.name), title: variant.name + value + spread });
    made.append(swatch(variant.name), make("span", variant.name));
    made.onclick = () => {
      chosen.hidden = chosen.hidden.includes(variant.name) ? chosen.hidden.filter(name => name !== variant.name) : [...chosen.hidden, variant.name];
      made.setAttribute("aria-pressed", !chosen.hidden.includes(variant.name));
      refresh("curves", "costs", "parallel");
    };
    return made;
  });
  if (variants.length > styled.length) chips.push(make("p", `and ${variants.length - styled.length} more variants, in grey: filter to see them`));
  at("variants").replaceChildren(...chips);
}

// ---- the table of runs ----

function columns() {
  const group = data.groups[chosen.group], words = named(group.metric);
  const number = (title, of) => ({ title, of, number: true });
  // Kept by `seqtrain evaluate --split test`, of the best checkpoint.
  const tested = group.runs.some(index => data.runs[index].looks);
  const test = [{ ...number("test " + words, run => run.test), digits: 4 }, number("looks at test", run => run.looks)];
  return [
    { title: "run", of: run => run.name }, { title: "variant", of: run => run.variant }, { title: "status", of: run => run.status },
    ...group.keys.map(key => ({ title: data.short[key], of: run => run.values[key], number: group.runs.every(index => typeof (data.runs[index].values[key] ?? 0) === "number") })),
    { ...number("final " + words, run => run.final), digits: 4 }, { ...number("best " + words, run => run.best), digits: 4 }, ...(tested ? test : []),
    number("tokens", run => run.tokens), number("FLOPs", run => run.flops), number("seconds", run => run.seconds),
    number("tokens/s", run => run.tokens_per_second), number("parameters", run => run.parameters),
  ];
}

/* Numbers before texts, and what is missing last, whichever way it is sorted. */
function compared(a, b, sign) {
  const missing = value => value === null || value === undefined || value === "";
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
}

function showRuns() {
  const all = columns(), down = chosen.sort.startsWith("-"), title = chosen.sort.replace(/^-/, "");
  const by = all.find(column => column.title === title), runs = filtered();
  if (by) runs.sort((a, b) => compared(by.of(a), by.of(b), down ? -1 : 1));
  const head = make("tr"), body = make("tbody");
  head.append(make("th", "see", { scope: "col" }), ...all.map(column => heading(column, column === by ? (down ? "descending" : "ascending") : "")));
  for (const run of runs) {
    const row = make("tr"), cell = make("td"), tick = make("input", null, { type: "checkbox", checked: picks().includes(run) });
    tick.setAttribute("aria-label", "see " + run.name);
    tick.onchange = () => pick(run, tick.checked);
    cell.append(tick);
    row.append(cell, ...all.map((column, k) => {
      const value = column.of(run), words = column.digits && value !== null ? value.toPrecision(column.digits) : told(value);
      const made = make(k ? "td" : "th", words, column.number ? { className: "number" } : {});
      if (!k) { made.scope = "row"; made.title = run.label; }
      if (column.title === "variant") made.prepend(swatch(run.variant), " ");
      if (column.title === "status") { made.className = "status-" + run.status.replace(/\W/g, ""); made.title = run.reason; }
      return made;
    }));
    body.append(row);
  }
  const top = make("thead");
  top.append(head);
  at("runs").replaceChildren(make("caption", "", { hidden: true }), top, body);
}

function heading(column, sorted) {
  const made = make("th", null, { scope: "col", className: column.number ? "number" : "" });
  const arrow = { ascending: " ↑", descending: " ↓" }[sorted] || "", button = make("button", column.title + arrow, { type: "button" });
  if (sorted) made.setAttribute("aria-sort", sorted);
  button.onclick = () => {
    chosen.sort = (sorted === "ascending" ? "-" : "") + column.title;
    remember();
    showRuns();
    const again = [...at("runs").querySelectorAll("thead button")].find(each => each.textContent.startsWith(column.title));
    again?.focus();
  };
  made.append(button);
  return made;
}

// ---- what stands side by side ----

/* The runs that are ticked; before the reader ticks any, the best finished run of each of the best variants. */
function picks() {
  const group = data.groups[chosen.group];
  if (chosen.picked) return group.runs.map(index => data.runs[index]).filter(run => chosen.picked.includes(run.name));
  const sign = group.mode === "max" ? -1 : 1;
  return armsOf(shownRuns()).slice(0, MOST_PICKS).map(variant => {
    const own = shownRuns().filter(run => run.variant === variant.name);
    return own.sort((a, b) => (b.status === "finished") - (a.status === "finished") || compared(a.final, b.final, sign))[0];
  });
}

function pick(run, wanted) {
  const names = picks().map(each => each.name).filter(name => name !== run.name);
  chosen.picked = wanted ? [...names, run.name] : names;
  refresh("samples", "diff", "environment");
}

async function showSamples() {
  const samples = await block("samples"), runs = picks();
  at("samples-note").textContent = `The newest sample of each ticked run, at most ${data.sample.toLocaleString("en")} characters of it. Samples are drawn by chance: they show what a model's text is like, not which model is better.`;
  at("samples-cards").replaceChildren(...runs.map(run => {
    const made = make("article"), title = make("h3", " " + run.name), [step, text] = samples[run.index] ?? [null, null];
    title.prepend(swatch(run.variant));
    made.append(title, make("p", text === null ? "no sample" : `${run.label}, step ${told(step)}`, { className: "note" }));
    if (text !== null) made.append(make("pre", text, { tabIndex: 0 }));
    return made;
  }));
}

/* A table of the ticked runs, a column each; rows whose values differ are tinted. */
function beside(table, runs, rows) {
  const head = make("tr"), top = make("thead"), body = make("tbody");
  head.append(make("td", ""), ...runs.map(run => make("th", run.name, { scope: "col" })));
  top.append(head);
  for (const [title, values] of rows) {
    const row = make("tr", null, { className: new Set(values).size > 1 ? "differs" : "" });
    row.append(make("th", title, { scope: "row" }), ...values.map(value => make("td", value === undefined ? "–" : told(value))));
    body.append(row);
  }
  table.replaceChildren(top, body);
}

async function showDiff() {
  const configs = await block("configs"), runs = picks(), group = data.groups[chosen.group];
  beside(at("diff-table"), runs, group.keys.map(key => [key, runs.map(run => run.values[key])]));
  at("configs").replaceChildren(...runs.map(run => {
    const made = make("details");
    made.append(make("summary", `the whole configuration of ${run.name}`), make("pre", configs[run.index]));
    return made;
  }));
}

async function showEnvironment() {
  const all = await block("environment"), runs = picks();
  const keys = [...new Set(runs.flatMap(run => Object.keys(all[run.index])))];
  beside(at("environment-table"), runs, keys.map(key => [key, runs.map(run => all[run.index][key])]));
}

// ---- which option matters ----

const MOST_LEVELS = 6, BINS = 4; // a number of more values is cut into bins

/* The values of an option as levels: a number of many values is cut into bins of equally many runs. */
function levels(values) {
  const numbers = values.every(value => typeof value === "number");
  if (!numbers || new Set(values).size <= MOST_LEVELS) return values.map(value => JSON.stringify(value));
  const ranked = values.toSorted((a, b) => a - b);
  return values.map(value => Math.floor(ranked.indexOf(value) * BINS / ranked.length));
}

/* The share of the variance of the values that goes with the levels of one option, from 0 to 1: epsilon squared of a
   one-way ANOVA, corrected for what as many levels would explain by chance (Kelley 1935, "An unbiased correlation ratio
   measure"). null where no level has two values, or where the values do not differ. */
function shareOfVariance(levels, values) {
  const mean = all => all.reduce((sum, value) => sum + value, 0) / all.length;
  const squares = all => { const middle = mean(all); return all.reduce((sum, value) => sum + (value - middle) ** 2, 0); };
  const groups = [...Map.groupBy(values, (_, k) => levels[k]).values()];
  const total = squares(values), free = values.length - groups.length;
  if (!free || groups.length < 2 || !total) return null;
  const within = groups.reduce((sum, group) => sum + squares(group), 0);
  return Math.max(0, 1 - (within / free) * (values.length - 1) / total);
}

/* For each option the share of the final metric's variance that goes with it, over the finished runs that have both. */
function importanceOf(runs, keys) {
  return keys.map(key => {
    const own = runs.filter(run => run.status === "finished" && run.final !== null && key in run.values);
    const values = own.map(run => run.values[key]), cut = levels(values);
    const share = shareOfVariance(cut, own.map(run => run.final));
    return { key, share, values: new Set(values.map(value => JSON.stringify(value))).size, levels: new Set(cut).size };
  });
}

function showImportance() {
  const group = data.groups[chosen.group], runs = filtered(), rows = [];
  const ranked = importanceOf(runs, group.keys).toSorted((a, b) => (b.share ?? -1) - (a.share ?? -1));
  for (const { key, share, values, levels } of ranked) {
    const row = make("div", null, { className: "row" }), bar = make("div", null, { className: "bar" }), fill = make("i");
    fill.style.width = `${100 * (share ?? 0)}%`;
    bar.append(fill);
    const tried = counted(values, "value") + (levels < values ? ` in ${levels} bins` : "");
    const words = share === null ? `cannot be told from ${tried}` : `${(100 * share).toFixed(0)} % (${tried})`;
    row.append(make("div", key, { className: "key" }), bar, make("div", words, { className: "words" }));
    rows.push(row);
  }
  at("importance-bars").replaceChildren(...rows);
  const count = counted(runs.filter(run => run.status === "finished").length, "finished run");
  const which = runs.length < group.runs.length ? "that the filter leaves" : "of this group";
  at("importance-note").textContent = `The share of the variance of the final metric, over the ${count} ${which}, that goes with each option: epsilon squared of a one-way analysis of variance, numbers of many values cut into four bins. One option at a time: it sees no interaction, options that were changed together share their credit, and it speaks of the values that were tried, not of others. The share of seed is what chance alone does.${atEnds}`;
}
