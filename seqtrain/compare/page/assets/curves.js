// What runs are coloured and grouped by: their variant, or any setting, label, tag, commit or status.

const MARKS = ["label", "tag", "commit", "status"]; // what a run says of itself beside its settings
const NONE = "none";

/* What a run has of a key; undefined where it has nothing. */
function keyed(run, key) {
  if (key in run.settings) return run.settings[key];
  return key === "status" ? run.status : (run.marks || {})[key];
}

/* The keys in which runs of the group differ, each with its words. */
function groupingKeys() {
  const group = data.groups[chosen.group], runs = group.runs.map(index => data.runs[index]);
  const marks = MARKS.filter(key => new Set(runs.map(run => keyed(run, key))).size > 1);
  return [["variant", "variant"], ...group.keys.map(key => [key, data.short[key]]), ...marks.map(key => [key, key])];
}

function inOrder(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

/* How runs are put together. `of` names the group of a run, `names` are those of the runs given, in the order of the
   legend, and `look` says how one is drawn: undefined for what is left grey. */
function grouping(runs) {
  if (chosen.by === "variant") {
    return { key: "", of: run => run.variant, names: variantsOf(runs).map(variant => variant.name), look: style };
  }
  // Colours come from all runs of the group: they stay when the filter changes.
  const all = data.groups[chosen.group].runs.map(index => keyed(data.runs[index], chosen.by));
  const known = all.filter(isKnown).toSorted(inOrder).map(value => told(value));
  const sorted = [...new Set([...known.filter(name => name !== NONE), NONE])];
  const of = run => isKnown(keyed(run, chosen.by)) ? told(keyed(run, chosen.by)) : NONE, present = new Set(runs.map(of));
  const key = data.short[chosen.by] || chosen.by;
  return { key, of, names: sorted.filter(name => present.has(name)), look: name => styleOfSlot(sorted.indexOf(name)) };
}

/* What a band over these groups is not. */
function groupingNote(runs, groups) {
  if (!groups.key) return "";
  const mixed = [...Map.groupBy(runs, groups.of).values()].some(own => new Set(own.map(run => run.variant)).size > 1);
  const unlike = mixed ? " Here means and bands are over runs that also differ in other settings: a band is the range of what was tried, not the spread of seeds, and not a confidence interval." : "";
  return ` Coloured and grouped by ${groups.key}.${unlike}`;
}

/* The legend of groups that are not variants, which have theirs above. */
function showLegend(runs, groups) {
  const counts = Map.groupBy(runs, groups.of);
  const entry = name => make("span", [swatchOf(groups.look(name)), ` ${groups.key}=${name} (${counted(counts.get(name).length, "run")})`]);
  at("curves-legend").replaceChildren(...(groups.key ? groups.names.map(entry) : []));
}

// Learning curves.

/* The clock of a run against an axis: the place of each record that any of its curves needs. */
function clockOf(clock, run, axis) {
  const unit = { seconds: clock[run.index].tick, flops: run.flops_per_token || 0 }[axis] || 1;
  return summed(clock[run.index][axis === "flops" ? "tokens" : axis]).map(ticks => ticks * unit);
}

/* Of each run that recorded the metric its line, with the weight of each point: how many records it stands for. */
async function lines(runs, metric, axis, log = chosen.logy) {
  const [clock, values] = await Promise.all([block("clock"), block("metric-" + data.metrics.indexOf(metric))]);
  const found = [];
  for (const run of runs) {
    if (!values[run.index] || (axis === "flops" && !run.flops_per_token)) continue;
    const [rows, y, weights] = values[run.index], time = clockOf(clock, run, axis);
    const places = summed(rows).map(row => time[row]);
    const kept = places.map((_, k) => k).filter(k => (!chosen.logx || places[k] > 0) && (!log || y[k] > 0));
    const weight = k => weights ? Math.max(parseInt(weights[k], 36), 0.1) : 1;
    if (kept.length) found.push({ run, name: plain(run.name), x: kept.map(k => places[k]), y: kept.map(k => y[k]), weights: kept.map(weight) });
  }
  return found;
}

/* The value of a line at x, between its points; x lies within its reach. */
function valueAt(line, x, from) {
  let k = from;
  while (k < line.x.length - 1 && line.x[k + 1] < x) k++;
  const span = line.x[k + 1] - line.x[k];
  const share = span > 0 ? Math.min(Math.max((x - line.x[k]) / span, 0), 1) : 0;
  return [k, k + 1 < line.x.length ? line.y[k] + share * (line.y[k + 1] - line.y[k]) : line.y[k]];
}

/* Mean and extremes of several lines, as far as all of them reach. */
function band(several) {
  const first = Math.max(...several.map(line => line.x[0])), last = Math.min(...several.map(line => line.x.at(-1)));
  const every = new Set(several.flatMap(line => line.x));
  let grid = [...every].filter(x => x >= first && x <= last).sort((a, b) => a - b);
  if (grid.length > data.points) {
    const skip = (grid.length - 1) / (data.points - 1);
    grid = Array.from({ length: data.points }, (_, k) => grid[Math.round(k * skip)]);
  }
  const from = several.map(() => 0), result = { x: grid, mean: [], low: [], high: [] };
  for (const x of grid) {
    const values = several.map((line, k) => { const [next, y] = valueAt(line, x, from[k]); from[k] = next; return y; });
    result.mean.push(values.reduce((sum, y) => sum + y, 0) / values.length);
    result.low.push(Math.min(...values));
    result.high.push(Math.max(...values));
  }
  return result;
}

const isWhole = line => ["finished", "running"].includes(line.run.status);

/* A band, the runs and their mean; of runs that no band is drawn of, a line each. */
function groupTraces(own, look, half, clipped) {
  const even = smoothedAll(own, half, clipped), whole = even.filter(isWhole);
  const several = whole.length > 1 ? band(whole) : { x: [] };
  const marker = { symbol: look.symbol, size: 7, color: look.color, maxdisplayed: 12 };
  const main = { mode: "lines+markers", line: { color: look.color, width: 2.2, dash: look.dash }, marker };
  const raw = { ...joined(own), line: { color: veiled(look.color, half ? 0.25 : 0.4), width: 1 } };
  if (several.x.length < 2) {
    const each = even.map(line => ({ ...joined([line]), ...main, connectgaps: false }));
    return half ? [raw, ...each] : each;
  }
  return [
    {
      x: [...several.x, ...several.x.toReversed()], y: [...several.high, ...several.low.toReversed()],
      mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: veiled(look.color, 0.16),
    },
    raw,
    { ...main, x: several.x, y: several.mean },
  ];
}

/* What was measured in training, thin and dotted beside the validation: one line a group where its runs have a mean. */
function besideTraces(own, look, half, clipped) {
  const even = smoothedAll(own, half, clipped), whole = even.filter(isWhole);
  const several = whole.length > 1 ? band(whole) : { x: [] };
  const all = several.x.length < 2 ? joined(even) : { x: several.x, y: several.mean, mode: "lines" };
  const raw = { ...joined(own), line: { color: veiled(look.color, 0.2), width: 0.8 } };
  return [...(half ? [raw] : []), { ...all, line: { color: veiled(look.color, 0.75), width: 1.2, dash: "dot" } }];
}

/* The same metric as it was measured in training; "" where the metric is of something else, or where none was. */
function besideOf(metric) {
  const other = metric.replace(/^validation\//, "train/");
  return !chosen.alone && other !== metric && recordedMetrics().includes(other) ? other : "";
}

function recordedMetrics() {
  return data.metrics.filter((_, index) => data.groups[chosen.group].metrics.includes(index));
}

/* What guessing the commonest class and the like would score in this metric, where the runs kept it. */
function baselinesOf(metric) {
  const group = data.groups[chosen.group], name = metric.replace(/^validation\//, "");
  if (name === metric) return [];
  const value = each => each.values ? each.values[name] : name === group.metric ? each.value : undefined;
  return (group.baselines || []).map(each => ({ name: each.name, value: value(each) })).filter(each => Number.isFinite(each.value));
}

/* Draws the baselines that lie inside the picture, which they do not stretch, and says which lie outside.
   Plotly widens a range for them, so they come when it is known. */
async function addBaselines(place, baselines, log) {
  const range = at(place).layout.yaxis.range;
  if (!baselines.length || !range) return "";
  const scaled = value => log ? Math.log10(value) : value, isInside = each => scaled(each.value) >= Math.min(...range) && scaled(each.value) <= Math.max(...range);
  const shown = baselines.filter(isInside), outside = baselines.filter(each => !isInside(each));
  const line = { color: ink("soft"), width: 1.2, dash: "dash" };
  const shapes = shown.map(each => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: each.value, y1: each.value, layer: "below", line }));
  const annotations = (at(place).layout.annotations || []).concat(shown.map(each => ({
    text: plain(`${each.name}: ${told(each.value)}`), xref: "paper", x: 1, xanchor: "right", y: scaled(each.value), yanchor: "bottom",
    showarrow: false, font: { size: 11.5, color: ink("soft") }, bgcolor: veiled(ink("paper"), 0.7),
  })));
  if (shown.length) await Plotly.relayout(place, { shapes, annotations, "yaxis.range": [...range], "yaxis.autorange": false });
  const words = outside.map(each => `${each.name} ${told(each.value)}`).join(", ");
  return words && ` Baselines outside the plot: ${words}.`;
}

/* Draws the chart of one metric.
   Gives what a note must say of it, and the groups that it shows. */
async function drawMetric(place, metric, { log, title, names = true }) {
  const runs = shownRuns(), groups = grouping(runs), half = await halfLife(runs), other = metric && besideOf(metric);
  const own = metric ? await lines(runs, metric, chosen.axis, log) : [], beside = other ? await lines(runs, other, chosen.axis, log) : [];
  const byGroup = Map.groupBy(own, line => groups.of(line.run)), besideByGroup = Map.groupBy(beside, line => groups.of(line.run));
  const traces = [], rest = own.filter(line => !groups.look(groups.of(line.run)));
  if (rest.length) traces.push({ ...joined(rest), line: { color: veiled(ink("rest"), 0.35), width: 1 } });
  const styled = groups.names.filter(name => groups.look(name) && (byGroup.has(name) || besideByGroup.has(name))).toReversed();
  const clipped = clippedRange([...own, ...beside], log);
  for (const name of styled) if (besideByGroup.has(name)) traces.push(...besideTraces(besideByGroup.get(name), groups.look(name), half, clipped));
  for (const name of styled) if (byGroup.has(name)) traces.push(...groupTraces(byGroup.get(name), groups.look(name), half, clipped));
  const nothing = own.length ? [] : [{ text: "none of the shown runs recorded this", showarrow: false, xref: "paper", yref: "paper", x: .5, y: .5 }];
  await Plotly.react(place, traces, layout({
    margin: names ? { l: 56, r: 12, t: 20, b: 48 } : { l: 48, r: 8, t: 8, b: 28 },
    hovermode: false, // `readable` reads all groups at once
    uirevision: zoomKept(metric, chosen.axis, chosen.logx, log, chosen.outliers), // what a reader zoomed to lives through news
    xaxis: { title: { text: names ? AXES[chosen.axis] : "" }, type: chosen.logx ? "log" : "linear" },
    yaxis: {
      title: { text: title }, type: log ? "log" : "linear", exponentformat: "power",
      ...(clipped ? { range: clipped.range, autorange: false } : { autorange: true }),
    },
    shapes: [], annotations: nothing,
  }), CONFIG);
  const outside = await addBaselines(place, baselinesOf(metric || ""), log);
  const even = lines => smoothedAll(lines || [], half, clipped);
  const read = name => [name, groups.look(name), even(byGroup.get(name)), even(besideByGroup.get(name))];
  readable(place, { metric, log, half, rows: groups.names.map(read), key: groups.key });
  at(place).setAttribute("aria-label", `${spoken(metric || "")} against ${AXES[chosen.axis]}: ${counted(own.length, "run")} in ${counted(byGroup.size, groups.key ? "group" : "variant")}. Arrow keys read values.`);
  return { runs, groups, half, shown: [...byGroup.keys()], beside: beside.length > 0, words: (outlierNote(clipped, half) + outside).trim() };
}

async function drawCurves() {
  const drawn = await drawMetric("curves-plot", chosen.metric, { log: chosen.logy, title: plain(spoken(chosen.metric || "")) });
  sayHalfLife(drawn.half);
  showLegend(drawn.runs, drawn.groups);
  at("curves-clipped").textContent = drawn.words;
  at("curves-note").textContent = curvesNote(drawn);
}

function curvesNote({ runs, groups, half, shown, beside }) {
  const thinning = `Curves are thinned to ${data.points} points: the first, the last, and the lowest and the highest of each of ${data.points / 2 - 1} intervals. Values that are not finite are left out.`;
  const bands = `If a ${groups.key ? "group has several runs" : "variant has several seeds"} that are finished or running, the line is their mean and the band their range, up to where the shortest run ends. Thin lines are single runs.`;
  const training = beside ? " Thin dotted lines: the same metric on training batches." : "";
  const grey = groups.key ? groupsInGrey(shown, groups) : greyNote(shown);
  return `${bands}${training}${smoothingNote(half)}${groupingNote(runs, groups)} ${thinning}${grey}`;
}

function groupsInGrey(shown, groups) {
  const grey = shown.filter(name => !groups.look(name)).length;
  return grey ? ` ${grey} of ${shown.length} groups are grey because there are too few colours.` : "";
}

// More charts: a grid that the reader fills, each chart against the same x as the large one.

/* What the grid holds before the reader has chosen: is it learning, is it stable, is it fast, what does it take. */
function startingCharts(recorded) {
  const group = data.groups[chosen.group];
  const losses = ["validation/loss", "train/loss"].filter(metric => metric !== "validation/" + group.metric);
  const loss = losses.find(metric => recorded.includes(metric));
  const others = ["gradient_norm", "lr", "tokens_per_second"].filter(metric => recorded.includes(metric));
  return [...(loss ? [loss] : []), ...others, ...recorded.filter(metric => metric.startsWith("system/"))];
}

function chartsShown() {
  const recorded = recordedMetrics();
  return (chosen.charts || startingCharts(recorded)).filter(metric => recorded.includes(metric));
}

function showCharts(metrics) {
  chosen.charts = metrics;
  return refresh("charts");
}

async function drawCharts() {
  const metrics = chartsShown(), grid = at("charts-grid");
  for (const old of [...grid.children]) {
    if (metrics.includes(old.dataset.metric)) continue;
    readings.delete(old.querySelector(".plot").id);
    Plotly.purge(old.querySelector(".plot"));
    old.remove();
  }
  const figures = metrics.map(metric => [...grid.children].find(each => each.dataset.metric === metric) || newChart(metric));
  // A chart that is put in anew loses the keyboard's place.
  if (figures.some((figure, k) => grid.children[k] !== figure)) grid.append(...figures);
  fillAdding(metrics);
  at("charts-empty").hidden = metrics.length > 0;
  for (const [k, metric] of metrics.entries()) {
    const place = figures[k].querySelector(".plot").id, log = chosen.logs.includes(metric);
    figures[k].querySelector("button").setAttribute("aria-pressed", log);
    const drawn = await drawMetric(place, metric, { log, title: "", names: false });
    figures[k].querySelector(".note").textContent = drawn.words;
  }
}

/* The large chart is not offered again, nor what the grid has. */
function fillAdding(metrics) {
  const left = recordedMetrics().filter(metric => !metrics.includes(metric));
  fill("adding", [["", left.length ? "choose a metric" : "all are shown"], ...left.map(metric => [metric, spoken(metric)])], "");
  at("adding").disabled = !left.length;
}

function newChart(metric) {
  const words = spoken(metric);
  const log = make("button", "log y", { type: "button" }), away = make("button", "×", { type: "button", title: "Remove this chart" });
  log.setAttribute("aria-label", `log y of ${words}`);
  away.setAttribute("aria-label", `Remove the chart of ${words}`);
  log.onclick = () => {
    chosen.logs = toggled(chosen.logs, metric);
    refresh("charts");
  };
  away.onclick = () => {
    at("adding").focus();
    showCharts(chartsShown().filter(each => each !== metric));
  };
  const head = make("div", [make("h3", words), log, away], { className: "head" });
  const place = make("div", null, { className: "plot small", id: "chart-" + data.metrics.indexOf(metric), role: "group" });
  return make("figure", [head, place, make("p", "", { className: "note" })], { "data-metric": metric });
}

function startCharts() {
  at("adding").onchange = () => at("adding").value && showCharts([...chartsShown(), at("adding").value]);
  at("usual").onclick = () => { chosen.charts = null; chosen.logs = []; refresh("charts"); };
}
