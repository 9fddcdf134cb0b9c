// The table of variants: a row each, the best first, with an interval plot; a name is pressed to hide or show it in the charts.

const MOST_ROWS = 12; // before the rest is folded
let unfolded = false;

/* A cell of a number and, below it, smaller words. */
function stacked(words, below = "", kind = "") {
  const made = make("td", words, { className: "number" });
  if (below) made.append(make("small", below, { className: kind }));
  return made;
}

function short(value) {
  if (value === null || value === undefined) return "";
  const size = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([size]) => Math.abs(value) >= size && Math.abs(value) < 1e12);
  return size ? Number((value / size[0]).toPrecision(3)) + size[1] : told(value, 3);
}

/* Better or worse, in words: signs mislead where more is better. */
function aside(value, precision, decimals) {
  const words = decimals === undefined ? told(Math.abs(value), precision) : Math.abs(value).toFixed(decimals);
  return Number(words) === 0 ? "0" : `${words} ${value > 0 ? "worse" : "better"}`;
}

function comparisonCell(variant) {
  const pair = variant.comparison;
  if (!pair) return stacked(variant.reference ? "reference" : "", variant.seeds === 1 ? "one seed" : "");
  const numbers = [pair.low, pair.high].map(value => value.toFixed(pair.digits));
  const made = stacked(aside(pair.difference, 2, pair.digits), `${numbers[0]} to ${numbers[1]}`);
  made.append(make("small", pair.shown ? "significant" : "no significant difference", { className: pair.shown ? "said" : "" }));
  if (!pair.shown) made.append(make("small", pair.needed > 50 ? "over 50 seeds needed" : `about ${pair.needed} seeds needed`));
  if (pair.against) made.append(make("small", `than ${pair.against}`));
  return made;
}

/* Decimals that show two digits of a number, but none beyond those that means are shown with. */
function meantDigits(value, most) {
  const needed = value ? 1 - Math.floor(Math.log10(Math.abs(value))) : 0;
  return Math.max(Math.min(needed, most), 0);
}

/* How validation stood to training at the end, and to its own best. */
function gapCell(variant, digits) {
  const made = stacked(variant.gap === null ? "" : aside(variant.gap, 2, meantDigits(variant.gap, digits)));
  const lost = variant.lost === null ? "" : variant.lost.toFixed(meantDigits(variant.lost, digits));
  if (lost) made.append(make("small", Number(lost) ? `${lost} since best` : variant.lost ? "about as at its best" : "best at the end"));
  const count = variant.judged > 1 ? ` ${variant.overfits} of ${variant.judged}` : "";
  if (variant.overfits) made.append(make("small", "overfits" + count, { className: "warn" }));
  return made;
}

/* What stands in the columns; `has` tells whether any row has it, and an empty column is left out. */
function variantColumns(group, axis) {
  const reference = group.variants.filter(variant => variant.reference);
  const against = reference.length === 1 ? `to ${reference[0] === group.variants[0] ? "the best" : reference[0].name}` : "to its like";
  const repeated = group.variants.some(variant => variant.interval);
  const value = row => row.mean === null && row.so_far !== null ? stacked(mean(row.so_far), "so far: does not count") : stacked(mean(row.mean), row.interval ? row.interval.map(mean).join(" to ") : "");
  const mean = value => value === null ? "" : value.toFixed(group.digits);
  return [
    { title: `${data.which} ${named(group.metric)}`, below: [data.equal, repeated ? "mean, 95 % interval" : ""].filter(Boolean).join("; "), cell: value, has: () => true },
    { title: "", axis, cell: row => { const made = make("td", null, { className: "plot-cell" }); if ((row.mean ?? row.so_far) !== null) made.append(intervalPlot(axis, row)); return made; }, has: () => axis },
    { title: "seeds", cell: row => stacked(String(row.seeds), row.runs > row.seeds ? `of ${counted(row.runs, "run")}` : ""), has: () => true },
    { title: "difference", below: `${against}; interval over all pairs`, cell: comparisonCell, has: row => row.comparison },
    { title: "effect", below: "in sd of seeds", cell: row => stacked(row.comparison ? told(row.comparison.effect, 2) : ""), has: row => row.comparison },
    { title: "parameters", cell: row => stacked(short(row.costs.parameters)), has: row => row.costs.parameters !== null },
    { title: "tokens", below: "FLOPs", cell: row => stacked(short(row.costs.tokens), short(row.costs.flops)), has: row => row.costs.tokens !== null },
    { title: "seconds", below: "tokens/s", cell: row => stacked(short(row.costs.seconds), short(row.costs.tokens_per_second)), has: row => row.costs.seconds !== null },
    { title: "gap", below: "validation to training, and to its best", cell: row => gapCell(row, group.digits), has: row => row.gap !== null || row.lost !== null },
    { title: "test", below: "best checkpoint", cell: row => stacked(row.test === null ? "" : mean(row.test), row.tested && row.tested < row.seeds ? `${row.tested} of ${row.seeds} runs have it` : ""), has: row => row.tested },
  ];
}

function variantHead(columns) {
  const top = make("thead"), head = make("tr");
  head.append(make("th", "variant", { scope: "col" }), ...columns.map(column => {
    const made = make("th", column.title, { scope: "col", className: column.axis ? "" : "number" });
    if (column.below) made.append(make("small", column.below));
    if (column.axis) { made.setAttribute("aria-label", "interval plot"); made.append(axisHead(column.axis)); }
    return made;
  }));
  top.append(head);
  return top;
}

function variantRow(variant, columns) {
  const row = make("tr"), name = make("th", null, { scope: "row" });
  const button = make("button", null, { type: "button", "aria-pressed": !chosen.hidden.includes(variant.name), title: "hide or show in the charts" });
  button.append(swatch(variant.name), make("span", variant.name));
  const mark = () => {
    const hidden = chosen.hidden.includes(variant.name);
    button.setAttribute("aria-pressed", !hidden);
    row.className = hidden ? "off" : "";
  };
  button.onclick = () => {
    chosen.hidden = chosen.hidden.includes(variant.name) ? chosen.hidden.filter(each => each !== variant.name) : [...chosen.hidden, variant.name];
    mark();
    refresh(...Object.keys(VIEWS));
  };
  mark();
  name.append(button);
  row.append(name, ...columns.map(column => column.cell(variant)));
  return row;
}

/* Predictors that know little, on the same text. */
function baselineRows(group, columns, axis) {
  const known = group.baselines.filter(each => each.values[group.metric] !== undefined), sign = group.mode === "max" ? -1 : 1;
  const body = make("tbody", null, { className: "baselines" });
  if (!known.length) return body;
  const title = make("tr");
  title.append(make("th", "Baselines, on the same text", { scope: "rowgroup", colSpan: columns.length + 1 }));
  body.append(title, ...known.toSorted((a, b) => sign * (a.values[group.metric] - b.values[group.metric])).map(each => {
    const row = make("tr"), name = make("th", each.name, { scope: "row" }), value = each.values[group.metric], plot = make("td", null, { className: "plot-cell" });
    if (each.knows) name.append(make("small", each.knows + (each.runs < group.runs.length ? `; of ${counted(each.runs, "run")}` : "")));
    if (axis) plot.append(baselinePlot(axis, value));
    row.append(name, stacked(value.toFixed(group.digits)), ...(axis ? [plot] : []));
    if (columns.length > row.children.length - 1) row.append(make("td", null, { colSpan: columns.length + 1 - row.children.length }));
    return row;
  }));
  return body;
}

function showVariants() {
  const group = data.groups[chosen.group], variants = variantsOf(filtered()), axis = scale(group, variants);
  const columns = variantColumns(group, axis).filter(column => variants.some(column.has)), body = make("tbody");
  const seen = unfolded ? variants : variants.slice(0, MOST_ROWS);
  body.append(...seen.map(variant => variantRow(variant, columns)));
  at("variants-title").textContent = group.runs.length === 1 ? (group.baselines.length ? "Beside its baselines" : "In figures") : "Variants, best first";
  if (group.refused) at("variants-title").textContent = "Variants, not compared: see above";
  at("variants-table").replaceChildren(variantHead(columns), body, baselineRows(group, columns, axis));
  const more = at("variants-more");
  more.hidden = variants.length <= MOST_ROWS;
  more.textContent = unfolded ? `Show the first ${MOST_ROWS} only` : `Show all ${variants.length} variants`;
  more.setAttribute("aria-expanded", unfolded);
  more.onclick = () => { unfolded = !unfolded; showVariants(); at("variants-more").focus(); };
  at("variants-note").textContent = variantsNote(group, variants);
}

function variantsNote(group, variants) {
  const words = [`${group.mode === "max" ? "More" : "Less"} is better.`], repeated = variants.some(variant => variant.interval);
  if (repeated) words.push("Circles: single seeds; diamond: their mean; bar: its 95 % interval. Whether two variants differ is said in the column of differences, not by whether bars overlap.");
  else if (variants.length > 1) words.push("One seed each: a point is one run, there are no intervals, and the order may be chance.");
  const ends = variants.flatMap(variant => [...variant.values, ...(variant.interval ?? [])]), axis = scale(group, variants);
  if (axis && ends.some(axis.beyond)) words.push("Arrows: it goes on beyond the axis.");
  if (group.baselines.length && axis && axis.floors.length) words.push("Dotted: baselines.");
  if (variants.length < group.variants.length) words.push(`${variants.length} of ${group.variants.length} variants pass the filter; each row is of all its runs that count.`);
  if (variants.some(variant => variant.so_far !== null)) words.push("Hollow and dashed: what does not count, for it has not finished or was left out, at its last validation.");
  if (group.runs.length > 1) words.push("Press a name to hide it in the charts.");
  return words.join(" ") + greyNote(variants.map(variant => variant.name));
}
