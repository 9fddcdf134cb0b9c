// What every plot shares: its layout, smoothing, clipping, and the pointer that reads it.

// The buttons by name: those that another release of Plotly adds, such as one that uploads the chart, do not come in.
const BUTTONS = [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]];
const CONFIG = { responsive: true, displaylogo: false, scrollZoom: false, modeBarButtons: BUTTONS, showSendToCloud: false, plotlyServerURL: "" };

/* The same as long as a picture shows the same: then Plotly keeps what the reader zoomed to. */
const zoomKept = (...shown) => JSON.stringify([chosen.group, ...shown]);

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

// Smoothing: what is drawn is a mean of what is near, and says so.

/* The stretch of x over which a point's weight halves; 0 where nothing is smoothed. It is a share of the longest run
   that is shown and so the same in all charts, for runs that record often and for those that record seldom. */
async function halfLife(runs) {
  if (!chosen.smooth) return 0;
  const clock = await block("clock");
  const lengths = runs.map(run => clockOf(clock, run, chosen.axis).at(-1) || 0);
  return chosen.smooth / 100 * Math.max(0, ...lengths);
}

/* Sums of weights and of weighted values from one end of a line, both fading with the distance in x. */
function fadingSums(line, half, order) {
  const sums = [], weights = [];
  let sum = 0, weight = 0, before = line.x[order[0]];
  for (const k of order) {
    const fade = 2 ** (-Math.abs(line.x[k] - before) / half);
    sum = sum * fade + line.weights[k] * line.y[k];
    weight = weight * fade + line.weights[k];
    before = line.x[k];
    sums[k] = sum;
    weights[k] = weight;
  }
  return { sums, weights };
}

/* Each point as the mean of those around it, with weights that fade exponentially to either side: looking back alone,
   a line that falls would lie above itself, and one of many points (training) above one of few (validation). The
   weights of the points that there are make up the whole, so the ends are drawn neither to zero nor to the first
   point; a thinned point weighs as many records as it stands for. What is left outside the picture counts nowhere. */
function smoothed(line, half, clipped) {
  if (!half) return line;
  const inside = line.y.map((_, k) => k).filter(k => !clipped || !clipped.outside(line.y[k]));
  const kept = {
    ...line, x: inside.map(k => line.x[k]), y: inside.map(k => line.y[k]), weights: inside.map(k => line.weights[k]),
  };
  const order = inside.map((_, k) => k);
  const back = fadingSums(kept, half, order), on = fadingSums(kept, half, order.toReversed());
  const value = k => {
    const own = kept.weights[k];
    return (back.sums[k] + on.sums[k] - own * kept.y[k]) / (back.weights[k] + on.weights[k] - own);
  };
  return { ...kept, y: order.map(value) };
}

const smoothedAll = (lines, half, clipped) => lines.map(line => smoothed(line, half, clipped)).filter(line => line.x.length);

function smoothingNote(half) {
  if (!half) return "";
  return ` Smoothed: a point is the mean of the points around it, with weights that halve every ${told(half, 2)} of x (${AXES[chosen.axis]}) on both sides, so peaks are flatter and begin earlier. Faint and grey lines are raw. The conclusion and all tables use raw values.`;
}

function sayHalfLife(half) {
  at("smooth-value").textContent = half ? `halves every ${told(half, 2)}` : "off";
  at("smooth").setAttribute("aria-valuetext", at("smooth-value").textContent);
}

// Values so far from the rest that nothing else would be seen: left outside the picture, and counted.

const QUANTILES = 50; // of each line, so that a line of many points weighs no more than one of few
const HIDING = 10; // times the range of the bulk: from there on the bulk is a tenth of the picture or less
const AROUND = 2; // bulks that are shown above it and below it
const MOST_NAMED = 3;

/* The range of y that shows the bulk, and what lies outside; null where all is shown. */
function clippedRange(lines, log) {
  if (chosen.outliers === "shown" || !lines.length) return null;
  const scale = log ? Math.log10 : value => value, pooled = [];
  for (const line of lines) {
    const own = line.y.map(scale).sort((a, b) => a - b);
    for (let k = 0; k < QUANTILES; k++) pooled.push(own[Math.round(k / (QUANTILES - 1) * (own.length - 1))]);
  }
  pooled.sort((a, b) => a - b);
  const most = pooled.at(-1), least = pooled[0];
  const low = pooled[Math.floor(pooled.length / 10)], high = pooled[Math.ceil(pooled.length * 9 / 10) - 1], bulk = high - low;
  // A flat line with a spike is seen as that.
  if (!bulk || (chosen.outliers === "auto" && most - least <= HIDING * bulk)) return null;
  const range = [Math.max(least, low - AROUND * bulk) - bulk / 10, Math.min(most, high + AROUND * bulk) + bulk / 10];
  const outside = y => scale(y) < range[0] || scale(y) > range[1];
  const counts = lines.map(line => line.y.filter(outside).length);
  if (!counts.some(Boolean)) return null;
  const whole = lines.filter((line, k) => counts[k] === line.y.length).map(line => line.run.name);
  const ends = lines.flatMap(line => line.y.filter(outside));
  return {
    range, outside, whole: [...new Set(whole)], points: counts.reduce((sum, count) => sum + count, 0), runs: new Set(lines.filter((_, k) => counts[k]).map(line => line.run)).size,
    all: lines.reduce((sum, line) => sum + line.y.length, 0), low: ends.reduce((a, b) => Math.min(a, b)), high: ends.reduce((a, b) => Math.max(a, b)),
  };
}

function outlierNote(clipped, half) {
  if (!clipped) return "";
  const named = clipped.whole.slice(0, MOST_NAMED).join(", ") + (clipped.whole.length > MOST_NAMED ? ` and ${clipped.whole.length - MOST_NAMED} more` : "");
  const ends = [...new Set([told(clipped.low), told(clipped.high)])].join(" to ");
  const whole = clipped.whole.length ? ` Entirely outside: ${named}.` : "";
  return `Clipped: ${told(clipped.points)} of ${told(clipped.all)} drawn points, of ${counted(clipped.runs, "run")}, lie outside the plot (${ends})${half ? " and are left out of smoothed lines" : ""}.${whole}`;
}

// One pointer reads all groups at the same x, in the chart that it is over; a line marks that x in every chart.

const readings = new Map(); // of each chart what can be read there
const MOST_GROUPS_READ = 12, STEP = 1 / 50; // of the width, for the arrow keys

/* Makes a chart readable; again after each drawing. `rows` are groups: name, look, lines, lines in training. */
function readable(place, what) {
  const chart = at(place), before = readings.get(place);
  readings.set(place, what);
  if (before) return;
  chart.tabIndex = 0;
  chart.addEventListener("mousemove", event => read(place, event.clientX, event.clientY));
  chart.addEventListener("mouseleave", hush);
  chart.addEventListener("blur", hush);
  chart.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key], box = drawnBox(chart);
    if (!way || !box) return;
    event.preventDefault();
    const now = readings.get(place);
    now.share = Math.min(Math.max((now.share ?? 0.5) + way * STEP, 0), 1);
    read(place, box.left + now.share * box.width, null);
  });
}

const drawnBox = chart => chart.querySelector(".nsewdrag")?.getBoundingClientRect();

/* The value that an axis has at a share of its length. */
function valueOn(axis, share) {
  const value = axis.range[0] + share * (axis.range[1] - axis.range[0]);
  return axis.type === "log" ? 10 ** value : value;
}

function placeOn(axis, value) {
  return ((axis.type === "log" ? Math.log10(value) : value) - axis.range[0]) / (axis.range[1] - axis.range[0]);
}

/* The mean of the runs that reach x, how many do, and how many there are. */
function meanAt(own, x) {
  const reaching = own.filter(line => line.x[0] <= x && x <= line.x.at(-1));
  if (!reaching.length) return null;
  const sum = reaching.reduce((total, line) => total + valueAt(line, x, 0)[1], 0);
  return { value: sum / reaching.length, count: reaching.length, of: own.length };
}

/* What every group has at x: those of validation best first, others in the order of the legend. */
function readAt(place, x) {
  const { metric, rows } = readings.get(place), found = [];
  for (const [name, look, own, beside] of rows) {
    const kept = own.filter(isWhole).length > 1 ? own.filter(isWhole) : own;
    const value = meanAt(kept, x), training = meanAt(beside.filter(isWhole).length > 1 ? beside.filter(isWhole) : beside, x);
    if (value || training) found.push({ name, look, value, training });
  }
  const group = data.groups[chosen.group];
  if (metric !== "validation/" + group.metric) return found;
  const sign = group.mode === "max" ? -1 : 1;
  return found.toSorted((a, b) => sign * ((a.value ? a.value.value : Infinity * sign) - (b.value ? b.value.value : Infinity * sign)));
}

function amount(mean) {
  if (!mean) return "";
  const share = mean.count < mean.of ? ` (${mean.count} of ${mean.of} runs reach this x)` : mean.of > 1 ? ` (mean of ${mean.of})` : "";
  return told(mean.value) + share;
}

/* The run whose line passes nearest to a point of the picture. */
function nearestRun(place, x, height, axis) {
  let nearest = null, least = 0.04; // of the height
  for (const [, , own] of readings.get(place).rows) {
    for (const line of own) {
      if (line.x[0] > x || x > line.x.at(-1)) continue;
      const value = valueAt(line, x, 0)[1], far = Math.abs(placeOn(axis, value) - height);
      if (far < least) { least = far; nearest = { name: line.run.name, value }; }
    }
  }
  return nearest;
}

function read(place, left, top) {
  const chart = at(place), box = drawnBox(chart);
  if (!box || left < box.left || left > box.right) return hush();
  const { xaxis, yaxis } = chart.layout, x = valueOn(xaxis, (left - box.left) / box.width);
  const found = readAt(place, x), { half } = readings.get(place), rows = [];
  for (const { name, look, value, training } of found.slice(0, MOST_GROUPS_READ)) {
    rows.push(make("tr", [
      make("td", swatchOf(look)), make("th", name, { scope: "row" }), make("td", amount(value), { className: "number" }),
      make("td", training ? `training ${told(training.value)}` : ""),
    ]));
  }
  const table = make("table", rows), head = make("p", `${told(x)} ${AXES[chosen.axis]}${half ? ", smoothed" : ""}`);
  const more = found.length > MOST_GROUPS_READ ? `and ${found.length - MOST_GROUPS_READ} more` : "";
  const near = top === null ? null : nearestRun(place, x, 1 - (top - box.top) / box.height, yaxis);
  at("reading").replaceChildren(head, table, make("p", more), make("p", near ? `nearest line: ${near.name}, ${told(near.value)}` : ""));
  at("reading").hidden = !found.length;
  putBeside(at("reading"), left, top ?? box.top);
  cross(x);
}

/* Stands beside the pointer, inside the window. */
function putBeside(panel, left, top) {
  const { width, height } = panel.getBoundingClientRect(), room = document.documentElement.clientWidth;
  const right = left + 16 + width <= room;
  panel.style.left = `${Math.max(0, right ? left + 16 : Math.min(left - 16 - width, room - width))}px`;
  panel.style.top = `${Math.max(0, Math.min(top + 12, innerHeight - height - 8))}px`;
}

/* The same x in every chart that is drawn. */
function cross(x) {
  for (const place of readings.keys()) {
    const chart = at(place), box = chart && drawnBox(chart);
    if (!box) continue;
    const line = chart.querySelector(".cross") || chart.appendChild(make("i", null, { className: "cross" }));
    const share = placeOn(chart.layout.xaxis, x), frame = chart.getBoundingClientRect();
    line.hidden = !(share >= 0 && share <= 1);
    Object.assign(line.style, { left: `${box.left - frame.left + share * box.width}px`, top: `${box.top - frame.top}px`, height: `${box.height}px` });
  }
}

function hush() {
  at("reading").hidden = true;
  for (const line of document.querySelectorAll(".cross")) line.hidden = true;
}
