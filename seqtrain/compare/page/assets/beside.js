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

async function showEnvironment() {
  const all = await block("environment"), runs = picks();
  const keys = [...new Set(runs.flatMap(run => Object.keys(all[run.index])))];
  beside(at("environment-table"), runs, keys.map(key => [key, runs.map(run => all[run.index][key])]));
}
