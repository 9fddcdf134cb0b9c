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
