// Which option matters.

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
