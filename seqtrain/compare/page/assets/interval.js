// The interval plot of the table of variants: one axis for all rows, drawn as SVG.

const TRACK = { width: 240, height: 27, edge: 12 };
const FAR = 6; // a worst quarter that spreads so many times wider than the rest is drawn as arrows

function svg(tag, properties, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  if (words !== undefined) made.textContent = words;
  return made;
}

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
  const made = svg("svg", { class: "interval", viewBox: `0 0 ${TRACK.width} ${TRACK.height}`, "aria-hidden": "true" });
  for (const [value] of axis.ticks) made.append(svg("path", { class: "grid", d: `M${axis.place(value)} 0V${TRACK.height}` }));
  for (const value of axis.floors) made.append(svg("path", { class: "floor", d: `M${axis.place(value)} 0V${TRACK.height}` }));
  return made;
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

function arrow(side, color) {
  const x = side < 0 ? 1 : TRACK.width - 1, y = TRACK.height / 2;
  return svg("path", { d: `M${x} ${y}l${-8 * side} -4.5v9Z`, fill: color, "data-beyond": side });
}

/* One variant: its interval, its mean, and each seed as a small mark; arrows for what lies beyond the axis. */
function intervalPlot(axis, variant) {
  const made = ground(axis), color = (style(variant.name) || { color: ink("rest") }).color, y = TRACK.height / 2;
  if (variant.interval) {
    const [low, high] = variant.interval.map(axis.place);
    made.append(svg("path", { d: `M${low} ${y}H${high}`, stroke: color, "stroke-width": 2.4, class: "reach" }));
    for (const end of variant.interval) {
      const side = axis.beyond(end);
      made.append(side ? arrow(side, color) : svg("path", { d: `M${axis.place(end)} ${y - 5}v10`, stroke: color, "stroke-width": 1.6 }));
    }
  }
  if (variant.so_far !== null) {
    const side = axis.beyond(variant.so_far);
    made.append(side ? arrow(side, color) : svg("circle", { cx: axis.place(variant.so_far), cy: y, r: 4.5, fill: ink("paper"), stroke: color, "stroke-dasharray": "2 2", class: "so-far" }));
  }
  for (const value of variant.values) {
    const side = axis.beyond(value);
    if (!side) made.append(svg("circle", { cx: axis.place(value), cy: y, r: variant.seeds > 1 ? 2.6 : 4.5, fill: variant.seeds > 1 ? ink("paper") : color, stroke: color, class: "seed" }));
    else if (variant.seeds === 1) made.append(arrow(side, color));
  }
  if (variant.seeds > 1 && !axis.beyond(variant.mean)) made.append(svg("path", { d: `M${axis.place(variant.mean)} ${y - 6.5}l5 6.5l-5 6.5l-5 -6.5Z`, fill: color, class: "mean" }));
  return made;
}

function baselinePlot(axis, value) {
  const made = ground(axis), side = axis.beyond(value), y = TRACK.height / 2;
  made.append(side ? arrow(side, ink("rest")) : svg("path", { d: `M${axis.place(value)} ${y - 7}v14`, stroke: ink("soft"), "stroke-width": 2.4 }));
  return made;
}
