// Forecasts over what came, as small pictures beside samples: drawn as SVG, those of one row on one scale.

const FAN = { width: 300, height: 116, left: 40, right: 4, top: 6, bottom: 14 };
const FAN_INK = { truth: "#d55e00", forecast: "#0072b2" };

/* The lowest and the highest value of all pictures of a row: side by side they are compared by eye. */
function fanRange(fans) {
  const values = [];
  for (const fan of fans) {
    const lines = [fan.history, fan.median, fan.truth ?? [], ...fan.bands.flatMap(([, low, high]) => [low, high])];
    for (const value of lines.flat()) if (value !== null) values.push(value);
  }
  if (!values.length) return null;
  const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  const room = (high - low || Math.abs(high) || 1) / 20;
  return { low: low - room, high: high + room };
}

/* A line with a gap where a value is missing; a value between two gaps is a dot. */
function fanPath(values, first, place) {
  let path = "", down = false;
  for (const [k, value] of values.entries()) {
    if (value !== null) path += `${down ? "L" : "M"}${place(first + k, value)}${!down && (values[k + 1] ?? null) === null ? "h.5" : ""}`;
    down = value !== null;
  }
  return path;
}

/* The area between two ends, in parts where one of them is missing. */
function fanArea(low, high, first, place) {
  let path = "", upper = [], lower = [];
  for (let k = 0; k <= low.length; k++) {
    if (k < low.length && low[k] !== null && high[k] !== null) {
      upper.push(place(first + k, high[k]));
      lower.unshift(place(first + k, low[k]));
    } else if (upper.length) {
      path += `M${[...upper, ...lower].join("L")}Z`;
      upper = [];
      lower = [];
    }
  }
  return path;
}

function fanPicture(fan, range) {
  const before = fan.history.length, steps = before + fan.median.length;
  const x = k => FAN.left + (FAN.width - FAN.left - FAN.right) * k / Math.max(steps - 1, 1);
  const y = value => FAN.top + (FAN.height - FAN.top - FAN.bottom) * (range.high - value) / (range.high - range.low);
  const place = (k, value) => `${x(k).toFixed(1)} ${y(value).toFixed(1)}`;
  const intervals = fan.bands.map(([share]) => `${Math.round(100 * share)} %`).join(", ");
  const words = `${fan.title}: ${before} values read, ${fan.median.length} forecast${fan.truth ? ", and what came" : ""}${intervals ? `; intervals of ${intervals}` : ""}`;
  const made = svg("svg", { class: "fan", viewBox: `0 0 ${FAN.width} ${FAN.height}`, role: "img", "aria-label": words });
  made.append(svg("title", {}, words));
  for (const value of [range.low, range.high]) {
    made.append(svg("text", { x: FAN.left - 4, y: y(value) + 4, "text-anchor": "end" }, told(value, 3)));
  }
  for (const [share, low, high] of fan.bands) {
    made.append(svg("path", { d: fanArea(low, high, before, place), fill: FAN_INK.forecast, "fill-opacity": 0.2, "data-share": share }));
  }
  made.append(svg("path", { class: "edge", d: `M${x(before - 0.5)} ${FAN.top}V${FAN.height - FAN.bottom}` }));
  made.append(svg("text", { x: x(before - 0.5), y: FAN.height - 2, "text-anchor": "middle" }, `${fan.median.length} ahead`));
  made.append(svg("path", { class: "line history", d: fanPath(fan.history, 0, place) }));
  made.append(svg("path", { class: "line", d: fanPath(fan.median, before, place), stroke: FAN_INK.forecast }));
  if (fan.truth) made.append(svg("path", { class: "line truth", d: fanPath(fan.truth, before, place), stroke: FAN_INK.truth }));
  return made;
}

/* What is said of the pictures below a table of samples; nothing where there are none. */
function fanNote(found) {
  const shown = found.filter(Boolean), words = [];
  if (shown.some(each => each.fans?.some(Boolean))) {
    words.push("Pictures: grey, the values before; blue, the forecast with its intervals, darker the narrower; orange and dashed, what came; those of one row have one scale.");
  }
  if (shown.some(each => each.without_fans)) words.push("Some pictures are left out, as a page holds no more; they are in the runs' folders.");
  if (shown.some(each => each.fans?.some(fan => fan === null))) words.push("Forecasts of very many steps have no picture here.");
  return words;
}
