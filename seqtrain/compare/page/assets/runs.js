// The table of runs.

function columns() {
  const group = data.groups[chosen.group], words = named(group.metric);
  const number = (title, of) => ({ title, of, number: true });
  // Kept by `seqtrain evaluate --split test`, of the best checkpoint.
  const tested = group.runs.some(index => data.runs[index].looks);
  const test = [{ ...number("test " + words, run => run.test), digits: 4 }, number("test evaluations", run => run.looks)];
  return [
    { title: "run", of: run => run.name }, { title: "variant", of: run => run.variant }, { title: "status", of: run => run.status },
    ...group.keys.map(key => ({ title: data.short[key], of: run => run.settings[key], number: group.runs.every(index => typeof (data.runs[index].settings[key] ?? 0) === "number") })),
    { ...number("final " + words, run => run.final), digits: 4 }, { ...number("best " + words, run => run.best), digits: 4 }, ...(tested ? test : []),
    number("tokens", run => run.tokens), number("FLOPs", run => run.flops), number("seconds", run => run.seconds),
    number("tokens/s", run => run.tokens_per_second ?? run.progress?.speed), number("parameters", run => run.parameters),
    ...(group.runs.some(index => data.runs[index].state !== null) ? [number("state", run => run.state)] : []),
    ...(group.runs.some(index => data.runs[index].progress) ? [{ title: "progress", of: run => run.words || (run.progress ? "" : "done") }] : []),
    ...(group.runs.some(index => Object.keys(data.runs[index].links).length) ? [{ title: "files", of: run => Object.keys(run.links).join(" ") }] : []),
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
  const heads = all.map(column => heading(column, column === by ? (down ? "descending" : "ascending") : ""));
  const body = make("tbody", runs.map(run => {
    const tick = make("input", null, { type: "checkbox", checked: picks().includes(run), "aria-label": "see " + run.name });
    tick.onchange = () => pick(run, tick.checked);
    return make("tr", [make("td", tick), ...all.map(column => runCell(run, column))]);
  }));
  at("runs").replaceChildren(tableHead(["see", ...heads]), body);
}

function runCell(run, column) {
  const value = column.of(run), words = column.digits && value !== null ? value.toPrecision(column.digits) : told(value);
  if (column.title === "run") return make("th", words, { scope: "row", title: run.label });
  if (column.title === "files") return make("td", fileLinks(run));
  if (column.title === "variant") return make("td", [swatch(run.variant), " ", words]);
  if (column.title === "status") return make("td", words, { className: "status-" + run.status.replace(/\W/g, ""), title: run.reason });
  return make("td", words, column.number ? { className: "number" } : {});
}

function heading(column, sorted) {
  const arrow = { ascending: " ↑", descending: " ↓" }[sorted] || "", button = make("button", column.title + arrow, { type: "button" });
  const made = make("th", button, { scope: "col", className: column.number ? "number" : "" });
  if (sorted) made.setAttribute("aria-sort", sorted);
  button.onclick = () => {
    chosen.sort = (sorted === "ascending" ? "-" : "") + column.title;
    remember();
    showRuns();
    const again = [...at("runs").querySelectorAll("thead button")].find(each => each.textContent.startsWith(column.title));
    again?.focus();
  };
  return made;
}

// What stands side by side of the runs that are ticked: samples, configurations, environments.

const MOST_PICKS = 4; // runs that are shown side by side before the reader chooses

/* The runs that are ticked; before the reader ticks any, the best finished run of each of the best variants. */
function picks() {
  const group = data.groups[chosen.group];
  if (chosen.picked) return group.runs.map(index => data.runs[index]).filter(run => chosen.picked.includes(run.name));
  const sign = group.mode === "max" ? -1 : 1;
  return variantsOf(shownRuns()).slice(0, MOST_PICKS).map(variant => {
    const own = shownRuns().filter(run => run.variant === variant.name);
    return own.sort((a, b) => (b.status === "finished") - (a.status === "finished") || compared(a.final, b.final, sign))[0];
  });
}

/* What stands below a run's name: its label in its sweep, or its variant where the label is a part of the name. */
const aboutRun = run => run.name.endsWith(run.label) ? run.variant : run.label;

function pick(run, wanted) {
  const names = picks().map(each => each.name).filter(name => name !== run.name);
  chosen.picked = wanted ? [...names, run.name] : names;
  refresh("samples", "pictures", "diff", "environment");
}

/* A table of the ticked runs, a column each; rows whose values differ are tinted. */
function beside(table, runs, rows) {
  const shown = ([title, values]) => tableRow([title, ...values.map(value => value === undefined ? "–" : told(value))], { className: differ(values) ? "differs" : "" });
  table.replaceChildren(tableHead([make("td"), ...runs.map(run => run.name)]), make("tbody", rows.map(shown)));
}

const differ = values => new Set(values).size > 1;

async function showEnvironment() {
  const all = await block("environment"), runs = picks();
  const keys = [...new Set(runs.flatMap(run => Object.keys(all[run.index])))];
  beside(at("environment-table"), runs, keys.map(key => [key, runs.map(run => all[run.index][key])]));
}

/* The settings of the ticked runs: those that differ, or all. */
function showDiff() {
  const runs = picks(), keys = [...new Set(runs.flatMap(run => Object.keys(run.settings)))].sort();
  const rows = keys.map(key => [key, runs.map(run => run.settings[key])]);
  const differing = rows.filter(([, values]) => differ(values)), whole = chosen.whole || runs.length < 2;
  if (whole) rows.push(...Object.entries(data.common).map(([key, value]) => [key, runs.map(() => value)]));
  const seen = whole ? rows : differing;
  beside(at("diff-table"), seen.length ? runs : [], seen);
  at("diff-note").textContent = diffNote(runs, differing.length, keys.length + Object.keys(data.common).length);
}

function diffNote(runs, differing, count) {
  if (!runs.length) return "Tick runs in the table above to see how they were configured.";
  if (runs.length === 1) return `All settings of ${runs[0].name}; tick another run to see what differs.`;
  if (!differing) return `The ${runs.length} ticked runs are equal in all ${count} settings.`;
  return `${differing} of ${count} settings differ among ${runs.length} ticked runs.`;
}
