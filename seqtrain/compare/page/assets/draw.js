// The plots: learning curves, metric against cost, and options side by side.

const CONFIG = {
  responsive: true, displaylogo: false, scrollZoom: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};

function layout(more) {
  const axis = {
    gridcolor: ink("grid"), linecolor: ink("line"), zeroline: false, automargin: true, exponentformat: "SI",
    title: { standoff: 8 }, ticks: "outside", tickcolor: ink("line"), minexponent: 4,
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { family: "system-ui, sans-serif", size: 13, color: ink("ink") },
    margin: { l: 56, r: 12, t: 20, b: 48 },
    hoverlabel: { bgcolor: ink("raised"), bordercolor: ink("line"), font: { color: ink("ink") }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink("rest"), activecolor: ink("ink") },
    ...more,
    xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
  };
}

/* Plotly reads a little HTML in texts; what strangers named must not be read so. */
const plain = text => String(text).replace(/[&<>]/g, sign => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

function veiled(color, share) {
  const parts = [1, 3, 5].map(start => parseInt(color.slice(start, start + 2), 16));
  return `rgba(${parts.join(",")},${share})`;
}

/* Lines one after another in one trace, with gaps between them: a trace each would be slow. */
function joined(lines) {
  const x = [], y = [], text = [];
  for (const line of lines) {
    for (let k = 0; k < line.x.length; k++) { x.push(line.x[k]); y.push(line.y[k]); text.push(line.name); }
    x.push(null); y.push(null); text.push("");
  }
  return { x, y, text, mode: "lines", connectgaps: false };
}

// ---- learning curves ----

async function lines(runs, metric, axis) {
  const [clock, values] = await Promise.all([block("clock"), block("metric-" + data.metrics.indexOf(metric))]);
  const found = [];
  for (const run of runs) {
    if (!values[run.index] || (axis === "flops" && !run.flops_per_token)) continue;
    const [rows, y] = values[run.index], time = summed(clock[run.index][axis === "flops" ? "tokens" : axis]);
    const unit = { seconds: clock[run.index].tick, flops: run.flops_per_token }[axis] || 1;
    const places = summed(rows).map(row => time[row] * unit);
    const kept = places.map((_, k) => k).filter(k => (!chosen.logx || places[k] > 0) && (!chosen.logy || y[k] > 0));
    if (kept.length) found.push({ run, name: plain(run.name), x: kept.map(k => places[k]), y: kept.map(k => y[k]) });
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

function armTraces(variant, own, look) {
  const whole = own.filter(line => ["finished", "running"].includes(line.run.status));
  const several = whole.length > 1 ? band(whole) : { x: [] };
  const marker = { symbol: look.symbol, size: 7, color: look.color, maxdisplayed: 12 };
  const main = { mode: "lines+markers", line: { color: look.color, width: 2.2, dash: look.dash }, marker };
  if (several.x.length < 2) {
    const title = `${plain(variant.name)}<br>%{text}<br>%{y:.5~g} at %{x:.4~s}<extra></extra>`;
    return own.map(line => ({ ...joined([line]), ...main, connectgaps: false, hovertemplate: title }));
  }
  return [
    {
      x: [...several.x, ...several.x.toReversed()], y: [...several.high, ...several.low.toReversed()],
      mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: veiled(look.color, 0.16), hoverinfo: "skip",
    },
    {
      ...joined(own), line: { color: veiled(look.color, 0.4), width: 1 },
      hovertemplate: "%{text}<br>%{y:.5~g} at %{x:.4~s}<extra></extra>",
    },
    {
      ...main, x: several.x, y: several.mean,
      hovertemplate: `${plain(variant.name)}<br>mean of ${whole.length}: %{y:.5~g} at %{x:.4~s}<extra></extra>`,
    },
  ];
}

async function drawCurves() {
  const runs = shownRuns(), all = chosen.metric ? await lines(runs, chosen.metric, chosen.axis) : [];
  const byArm = Map.groupBy(all, line => line.run.variant), traces = [];
  const rest = all.filter(line => !style(line.run.variant));
  if (rest.length) traces.push({ ...joined(rest), line: { color: veiled(ink("rest"), 0.35), width: 1 }, hoverinfo: "skip" });
  const variants = armsOf(runs).filter(variant => style(variant.name) && byArm.has(variant.name));
  for (const variant of variants.toReversed()) traces.push(...armTraces(variant, byArm.get(variant.name), style(variant.name)));
  await Plotly.react("curves-plot", traces, layout({
    xaxis: { title: { text: AXES[chosen.axis] }, type: chosen.logx ? "log" : "linear" },
    yaxis: { title: { text: plain(spoken(chosen.metric || "")) }, type: chosen.logy ? "log" : "linear", exponentformat: "power" },
    annotations: all.length ? [] : [{ text: "no run that is shown recorded this", showarrow: false, xref: "paper", yref: "paper", x: .5, y: .5 }],
  }), CONFIG);
  at("curves-plot").setAttribute("aria-label", `${spoken(chosen.metric)} against ${AXES[chosen.axis]}: ${all.length} runs in ${byArm.size} variants`);
  at("curves-note").textContent = curvesNote([...byArm.keys()]);
}

function curvesNote(variants) {
  const thinning = `Curves thinned to ${data.points} points: the first, the last, and the lowest and the highest of each of ${data.points / 2 - 1} stretches; values that are not finite are left out.`;
  const bands = "Where an variant has several seeds that finished or still run, the line is their mean and the band reaches from the lowest to the highest, as far as all of them come; thin lines are single runs.";
  return `${bands} ${thinning}${greyNote(variants)}`;
}

// ---- metric against cost ----

const atEnds = data.equal && ` Each run counts as it was at its end, not ${data.equal} as in the conclusion.`;

/* Points that no other one beats in both cost and value, by rising cost. */
function front(points, mode) {
  const better = mode === "max" ? (a, b) => a > b : (a, b) => a < b;
  const kept = [];
  for (const point of points.toSorted((a, b) => a.x - b.x || (better(a.y, b.y) ? -1 : 1))) {
    if (!kept.length || better(point.y, kept.at(-1).y)) kept.push(point);
  }
  return kept;
}

function listed(names) {
  return names.slice(0, 8).join(", ") + (names.length > 8 ? ` and ${names.length - 8} more` : "") || "none yet";
}

function costPoints(runs) {
  const points = runs.map(run => ({ run, x: run[chosen.cost], y: run[chosen.which] }));
  return points.filter(point => point.x !== null && point.y !== null && (!chosen.logcost || point.x > 0));
}

function means(points) {
  const finished = points.filter(point => point.run.status === "finished");
  return [...Map.groupBy(finished, point => point.run.variant)].map(([variant, own]) => ({
    variant, count: own.length,
    x: own.reduce((sum, point) => sum + point.x, 0) / own.length, y: own.reduce((sum, point) => sum + point.y, 0) / own.length,
  }));
}

function drawCosts() {
  const group = data.groups[chosen.group], points = costPoints(shownRuns()), middle = means(points);
  const edge = front(middle, group.mode), look = variant => style(variant) || { color: ink("rest"), symbol: "circle" };
  const words = `${plain(named(group.metric))} %{y:.5~g}, ${COSTS[chosen.cost]} %{x:.4~s}<extra></extra>`;
  const traces = [
    {
      x: edge.map(point => point.x), y: edge.map(point => point.y), mode: "lines", hoverinfo: "skip",
      line: { shape: "hv", color: ink("soft"), width: 1.5, dash: "dot" },
    },
    {
      x: points.map(point => point.x), y: points.map(point => point.y), mode: "markers",
      text: points.map(point => `${plain(point.run.variant)}<br>${plain(point.run.name)} (${plain(point.run.status)})`),
      marker: {
        size: 6, opacity: 0.55, color: points.map(point => look(point.run.variant).color),
        symbol: points.map(point => look(point.run.variant).symbol + (point.run.status === "finished" ? "" : "-open")),
      },
      hovertemplate: "%{text}<br>" + words,
    },
    {
      x: middle.map(point => point.x), y: middle.map(point => point.y), mode: "markers",
      text: middle.map(point => `${plain(point.variant)}, mean of ${point.count}`),
      marker: {
        size: 13, color: middle.map(point => look(point.variant).color), symbol: middle.map(point => look(point.variant).symbol),
        line: { color: ink("paper"), width: 1.5 },
      },
      hovertemplate: "%{text}<br>" + words,
    },
  ];
  at("costs-note").textContent = `Large: an variant's mean over the runs that finished; small: its runs, hollow where they did not finish. Dotted: the Pareto front, the variants that none beats in both (${group.mode === "max" ? "more" : "less"} is better): ${listed(edge.map(point => point.variant))}.${greyNote([...new Set(points.map(point => point.run.variant))])}${atEnds}`;
  at("costs-plot").setAttribute("aria-label", at("costs-note").textContent);
  return Plotly.react("costs-plot", traces, layout({
    xaxis: { title: { text: COSTS[chosen.cost] }, type: chosen.logcost ? "log" : "linear" },
    yaxis: { title: { text: plain(`${chosen.which} ${spoken("validation/" + group.metric)}`) } },
  }), CONFIG);
}

// ---- options side by side (parallel coordinates) ----

const MOST_DIMENSIONS = 9, MOST_TICKS = 6;

/* Where a run's value stands on one dimension, from 0 to 1, and the ticks: [place, words]. */
function dimension(title, values) {
  const present = values.filter(value => value !== undefined && value !== null);
  const unique = [...new Set(present)];
  if (unique.length > MOST_TICKS && unique.every(value => typeof value === "number")) return scaled(title, values, unique);
  unique.sort((a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const place = value => unique.length > 1 ? unique.indexOf(value) / (unique.length - 1) : 0.5;
  const every = Math.ceil(unique.length / (2 * MOST_TICKS));
  const ticks = unique.map(value => [place(value), told(value)]).filter((_, k) => k % every === 0);
  return { title, ticks, places: values.map(value => value === undefined || value === null ? null : place(value)) };
}

function scaled(title, values, unique) {
  const low = Math.min(...unique), high = Math.max(...unique), log = low > 0 && high / low > 20;
  const reckon = log ? Math.log : value => value, back = log ? Math.exp : value => value;
  const span = reckon(high) - reckon(low) || 1;
  const place = value => value === undefined || value === null ? null : (reckon(value) - reckon(low)) / span;
  const ticks = [0, .25, .5, .75, 1].map(share => [share, told(back(reckon(low) + share * span), 3)]);
  return { title, ticks, places: values.map(place) };
}

function dimensions(runs, group) {
  const weight = Object.fromEntries(importanceOf(runs, group.keys).map(each => [each.key, each.share ?? 0]));
  const keys = group.keys.toSorted((a, b) => (weight[b] ?? 0) - (weight[a] ?? 0)).slice(0, MOST_DIMENSIONS);
  const shown = group.keys.filter(key => keys.includes(key));
  return [
    ...shown.map(key => dimension(data.short[key], runs.map(run => run.values[key]))),
    dimension("final " + named(group.metric), runs.map(run => run.final)),
  ];
}

function drawParallel() {
  const group = data.groups[chosen.group], runs = shownRuns().filter(run => run.final !== null);
  const all = runs.length ? dimensions(runs, group) : [];
  const byArm = Map.groupBy(runs.map((run, k) => ({ run, k })), each => style(each.run.variant) ? each.run.variant : "");
  const traces = [...byArm].toReversed().map(([variant, own]) => {
    const look = style(variant) || { color: ink("rest"), dash: "solid" };
    const each = own.map(({ run, k }) => {
      const known = all.map((_, place) => place).filter(place => all[place].places[k] !== null);
      return { name: `${plain(run.variant)}<br>${plain(run.name)}: ${told(run.final)}`, x: known, y: known.map(place => all[place].places[k]) };
    });
    return { ...joined(each), line: { color: veiled(look.color, variant ? 0.75 : 0.3), width: variant ? 1.6 : 1, dash: look.dash }, hovertemplate: "%{text}<extra></extra>" };
  });
  at("parallel-plot").style.minWidth = `${all.length * 7.5}rem`;
  const dropped = group.keys.length + 1 - all.length;
  at("parallel-note").textContent = "A line is a run; it joins the options that differ and ends at its metric. A run that has no such option passes it by." + (all.length && dropped > 0 ? ` ${dropped} options of least weight are left out.` : "") + greyNote([...new Set(runs.map(run => run.variant))]);
  return Plotly.react("parallel-plot", traces, layout({
    margin: { l: 84, r: 84, t: 32, b: 16 },
    xaxis: { range: [-0.02, all.length - 1 + 0.02], visible: false, fixedrange: true },
    yaxis: { range: [-0.06, 1.12], visible: false, fixedrange: true },
    shapes: all.map((_, place) => ({ type: "line", x0: place, x1: place, y0: 0, y1: 1, layer: "below", line: { color: ink("line"), width: 1.5 } })),
    annotations: all.flatMap((each, place) => [
      { x: place, y: 1.1, text: `<b>${plain(each.title)}</b>`, showarrow: false, xanchor: "center", font: { size: 12.5 } },
      ...each.ticks.map(([y, words]) => ({
        x: place, y, text: plain(clipped(words)), showarrow: false, xanchor: place ? "left" : "right", xshift: place ? 5 : -5,
        font: { size: 11.5, color: ink("soft") }, bgcolor: veiled(ink("paper"), 0.85), borderpad: 1,
      })),
    ]),
  }), { ...CONFIG, displayModeBar: false });
}

const clipped = words => words.length > 14 ? words.slice(0, 13) + "…" : words;
