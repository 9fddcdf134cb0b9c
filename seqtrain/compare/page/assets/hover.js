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
  const share = mean.count < mean.of ? ` (${mean.count} of ${mean.of} runs come so far)` : mean.of > 1 ? ` (mean of ${mean.of})` : "";
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
    const row = make("tr");
    const cell = make("td"), title = make("th", null, { scope: "row" });
    cell.append(swatchOf(look));
    title.textContent = name;
    row.append(cell, title, make("td", amount(value), { className: "number" }), make("td", training ? `training ${told(training.value)}` : ""));
    rows.push(row);
  }
  const table = make("table"), head = make("p", `${told(x)} ${AXES[chosen.axis]}${half ? ", smoothed" : ""}`);
  table.append(...rows);
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
