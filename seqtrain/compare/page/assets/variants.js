// The interval plot of the table of variants: one axis for all rows, drawn as SVG.

const TRACK = { width: 240, height: 27, edge: 12 }, MIDDLE = TRACK.height / 2;
const FAR = 6; // a worst quarter that spreads so many times wider than the rest is drawn as arrows

/* Where values lie on the shared axis: `place` gives pixels, `ticks` round values, `beyond` says on which side it ends. */
function scale(group, variants) {
  const worse = group.mode === "max" ? -1 : 1, points = variants.flatMap(variant => variant.so_far === null ? variant.values : [variant.so_far]);
  const floors = group.baselines.map(baseline => baseline.values[group.metric]).filter(value => value !== undefined);
  if (points.length < 2) points.push(...floors); // one run alone: baselines give its figure a measure
  if (!points.length) return null;
  const sorted = points.toSorted((a, b) => worse * (a - b)), best = sorted[0];
  const most = Math.abs(sorted[Math.floor(0.75 * (sorted.length - 1))] - best);
  let worst = sorted.at(-1);
  if (points.length > 4 && most && Math.abs(worst - best) > FAR * most) worst = sorted.findLast(value => Math.abs(value - best) <= FAR / 2 * most);
  let low = Math.min(best, worst), high = Math.max(best, worst);
  const span = high - low || Math.abs(low) / 20 || 1;
  // Intervals of two seeds may be so wide that nothing else would be seen.
  for (const end of [...variants.flatMap(variant => variant.interval ?? []), ...floors]) {
    if (end < low && end > low - 0.75 * span) low = end;
    if (end > high && end < high + 0.75 * span) high = end;
  }
  low -= 0.04 * span;
  high += 0.04 * span;
  const inner = TRACK.width - 2 * TRACK.edge;
  return {
    low, high, ticks: ticks(low, high), place: value => TRACK.edge + inner * Math.min(Math.max((value - low) / (high - low), 0), 1),
    beyond: value => value < low ? -1 : value > high ? 1 : 0,
    floors: floors.filter(value => value >= low && value <= high),
  };
}

/* Three to six round values between the ends. */
function ticks(low, high) {
  const size = 10 ** Math.floor(Math.log10((high - low) / 3)), step = size * [5, 2, 1].find(each => (high - low) / (each * size) >= 3);
  const digits = Math.min(Math.max(-Math.floor(Math.log10(step) + 1e-9), 0), 8), found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push([k * step, Math.abs(step) >= 1e4 ? told(k * step) : (k * step).toFixed(digits)]);
  return found;
}

function ground(axis) {
  const line = kind => value => svg("path", { class: kind, d: `M${axis.place(value)} 0V${TRACK.height}` });
  const lines = [...axis.ticks.map(([value]) => value).map(line("grid")), ...axis.floors.map(line("floor"))];
  return svg("svg", { class: "interval", viewBox: `0 0 ${TRACK.width} ${TRACK.height}`, "aria-hidden": "true" }, lines);
}

/* The head of the column: the values at the ticks; of those that would touch, every other one. */
function axisHead(axis) {
  const made = ground(axis), longest = Math.max(...axis.ticks.map(([, words]) => words.length)) * 6.5 + 8;
  const apart = axis.ticks.length > 1 ? axis.place(axis.ticks[1][0]) - axis.place(axis.ticks[0][0]) : TRACK.width;
  const every = Math.ceil(longest / apart);
  axis.ticks.forEach(([value, words], k) => {
    if (k % every === 0) made.append(svg("text", { x: axis.place(value), y: 15, "text-anchor": "middle" }, words));
  });
  return made;
}

/* A mark that `draw` makes of a value's place; an arrow where it lies beyond the axis. */
function mark(axis, value, color, draw) {
  const side = axis.beyond(value), x = side < 0 ? 1 : TRACK.width - 1;
  return side ? svg("path", { d: `M${x} ${MIDDLE}l${-8 * side} -4.5v9Z`, fill: color, "data-beyond": side }) : draw(axis.place(value));
}

const tick = (x, half, stroke, width) => svg("path", { d: `M${x} ${MIDDLE - half}v${2 * half}`, stroke, "stroke-width": width });

/* One variant: its interval, its mean, and each seed as a small mark; arrows for what lies beyond the axis. */
function intervalPlot(axis, variant) {
  const made = ground(axis), color = (style(variant.name) || { color: ink("rest") }).color, several = variant.seeds > 1;
  const circle = (cx, r, more) => svg("circle", { cx, cy: MIDDLE, r, stroke: color, ...more });
  if (variant.interval) {
    const [low, high] = variant.interval.map(axis.place);
    made.append(svg("path", { d: `M${low} ${MIDDLE}H${high}`, stroke: color, "stroke-width": 2.4, class: "reach" }));
    made.append(...variant.interval.map(end => mark(axis, end, color, x => tick(x, 5, color, 1.6))));
  }
  if (variant.so_far !== null) {
    made.append(mark(axis, variant.so_far, color, x => circle(x, 4.5, { fill: ink("paper"), "stroke-dasharray": "2 2", class: "so-far" })));
  }
  // Of several seeds the ends of the interval have the arrows.
  const seen = variant.values.filter(value => !several || !axis.beyond(value)), look = { fill: several ? ink("paper") : color, class: "seed" };
  made.append(...seen.map(value => mark(axis, value, color, x => circle(x, several ? 2.6 : 4.5, look))));
  if (several && !axis.beyond(variant.mean)) made.append(svg("path", { d: `M${axis.place(variant.mean)} ${MIDDLE - 6.5}l5 6.5l-5 6.5l-5 -6.5Z`, fill: color, class: "mean" }));
  return made;
}

function baselinePlot(axis, value) {
  const made = ground(axis);
  made.append(mark(axis, value, ink("rest"), x => tick(x, 7, ink("soft"), 2.4)));
  return made;
}

// The table of variants: a row each, the best first, with an interval plot; a name is pressed to hide or show it in the charts.

const MOST_ROWS = 12; // before the rest is folded
let unfolded = false;

/* A cell of a number and, below it, smaller words. */
const stacked = (words, below = "") => make("td", [words, below ? make("small", below) : null], { className: "number" });

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
  if (lost) made.append(make("small", Number(lost) ? `${lost} since best` : variant.lost ? "close to its best" : "best at the end"));
  const count = variant.judged > 1 ? ` ${variant.overfits} of ${variant.judged}` : "";
  if (variant.overfits) made.append(make("small", "overfits" + count, { className: "warn" }));
  return made;
}

/* What stands in the columns; `has` tells whether any row has it, and an empty column is left out. */
function variantColumns(group, axis) {
  const reference = group.variants.filter(variant => variant.reference);
  const against = reference.length === 1 ? `to ${reference[0] === group.variants[0] ? "the best" : reference[0].name}` : "to its like";
  const repeated = group.variants.some(variant => variant.interval);
  const value = row => row.mean === null && row.so_far !== null ? stacked(mean(row.so_far), "unfinished: not counted") : stacked(mean(row.mean), row.interval ? row.interval.map(mean).join(" to ") : "");
  const mean = value => value === null ? "" : value.toFixed(group.digits);
  return [
    { title: `${data.which} ${named(group.metric)}`, below: [data.equal, repeated ? "mean, 95 % interval" : ""].filter(Boolean).join("; "), cell: value, has: () => true },
    { title: "", axis, cell: row => make("td", (row.mean ?? row.so_far) === null ? null : intervalPlot(axis, row), { className: "plot-cell" }), has: () => axis },
    { title: "seeds", cell: row => stacked(String(row.seeds), row.runs > row.seeds ? `of ${counted(row.runs, "run")}` : ""), has: () => true },
    { title: "difference", below: `${against}; interval over all pairs`, cell: comparisonCell, has: row => row.comparison },
    { title: "effect", below: "in sd of seeds", cell: row => stacked(row.comparison ? told(row.comparison.effect, 2) : ""), has: row => row.comparison },
    { title: "parameters", cell: row => stacked(short(row.costs.parameters)), has: row => row.costs.parameters !== null },
    { title: "state", below: "numbers of a lane", cell: row => stacked(short(row.costs.state)), has: row => row.costs.state !== null },
    { title: "tokens", below: "FLOPs", cell: row => stacked(short(row.costs.tokens), short(row.costs.flops)), has: row => row.costs.tokens !== null },
    { title: "seconds", below: "tokens/s", cell: row => stacked(short(row.costs.seconds), short(row.costs.tokens_per_second)), has: row => row.costs.seconds !== null },
    { title: "gap", below: "validation to training, and to its best", cell: row => gapCell(row, group.digits), has: row => row.gap !== null || row.lost !== null },
    { title: "test", below: "best checkpoint", cell: row => stacked(row.test === null ? "" : mean(row.test), row.tested && row.tested < row.seeds ? `${row.tested} of ${row.seeds} runs have it` : ""), has: row => row.tested },
  ];
}

function variantHead({ title, below, axis }) {
  if (axis) return make("th", axisHead(axis), { scope: "col", "aria-label": "interval plot" });
  return make("th", [title, below ? make("small", below) : null], { scope: "col", className: "number" });
}

function variantRow(variant, columns) {
  const button = make("button", [swatch(variant.name), make("span", variant.name)], { type: "button", title: "hide or show in the charts" });
  const row = tableRow([[button], ...columns.map(column => column.cell(variant))]);
  const show = () => {
    const hidden = chosen.hidden.includes(variant.name);
    button.setAttribute("aria-pressed", !hidden);
    row.className = hidden ? "off" : "";
  };
  button.onclick = () => {
    chosen.hidden = toggled(chosen.hidden, variant.name);
    show();
    refresh(...Object.keys(VIEWS));
  };
  show();
  return row;
}

/* Predictors that know little, on the same data. */
function baselineRows(group, columns, axis) {
  const known = group.baselines.filter(each => each.values[group.metric] !== undefined), sign = group.mode === "max" ? -1 : 1;
  const title = make("tr", make("th", "Baselines, on the same data", { scope: "rowgroup", colSpan: columns.length + 1 }));
  const rows = known.toSorted((a, b) => sign * (a.values[group.metric] - b.values[group.metric])).map(each => {
    const value = each.values[group.metric], plot = axis ? [make("td", baselinePlot(axis, value), { className: "plot-cell" })] : [];
    const knows = each.knows && make("small", each.knows + (each.runs < group.runs.length ? `; of ${counted(each.runs, "run")}` : ""));
    const left = columns.length - 1 - plot.length, rest = left > 0 ? [make("td", null, { colSpan: left })] : [];
    return tableRow([[each.name, knows], stacked(value.toFixed(group.digits)), ...plot, ...rest]);
  });
  return make("tbody", rows.length ? [title, ...rows] : [], { className: "baselines" });
}

function showVariants() {
  const group = data.groups[chosen.group], variants = variantsOf(filtered()), axis = scale(group, variants);
  const columns = variantColumns(group, axis).filter(column => variants.some(column.has));
  const seen = unfolded ? variants : variants.slice(0, MOST_ROWS), body = make("tbody", seen.map(variant => variantRow(variant, columns)));
  at("variants-title").textContent = group.runs.length === 1 ? (group.baselines.length ? "Compared with baselines" : "Results") : "Variants, best first";
  if (group.refused) at("variants-title").textContent = "Variants, not compared: see above";
  at("variants-table").replaceChildren(tableHead(["variant", ...columns.map(variantHead)]), body, baselineRows(group, columns, axis));
  const more = at("variants-more");
  more.hidden = variants.length <= MOST_ROWS;
  more.textContent = unfolded ? `Show the first ${MOST_ROWS} only` : `Show all ${variants.length} variants`;
  more.setAttribute("aria-expanded", unfolded);
  more.onclick = () => { unfolded = !unfolded; showVariants(); at("variants-more").focus(); };
  at("variants-note").textContent = variantsNote(group, variants);
}

function variantsNote(group, variants) {
  const words = [`${group.mode === "max" ? "More" : "Less"} is better.`], repeated = variants.some(variant => variant.interval);
  if (repeated) words.push("Circles: single seeds; diamond: their mean; bar: its 95 % interval. The column of differences says whether two variants differ; whether bars overlap does not.");
  else if (variants.length > 1) words.push("One seed each: a point is one run, there are no intervals, and the order may be due to chance.");
  const ends = variants.flatMap(variant => [...variant.values, ...(variant.interval ?? [])]), axis = scale(group, variants);
  if (axis && ends.some(axis.beyond)) words.push("Arrow: the value is beyond the axis.");
  if (group.baselines.length && axis && axis.floors.length) words.push("Dotted: baselines.");
  if (variants.length < group.variants.length) words.push(`${variants.length} of ${group.variants.length} variants pass the filter; each row still uses all counted runs of its variant.`);
  if (variants.some(variant => variant.so_far !== null)) words.push("Hollow and dashed: a run that does not count (unfinished or left out), at its last validation.");
  if (group.runs.length > 1) words.push("Click a name to hide it in the charts.");
  return words.join(" ") + greyNote(variants.map(variant => variant.name));
}
