// Learning curves.

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

function variantTraces(variant, own, look) {
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
  const byVariant = Map.groupBy(all, line => line.run.variant), traces = [];
  const rest = all.filter(line => !style(line.run.variant));
  if (rest.length) traces.push({ ...joined(rest), line: { color: veiled(ink("rest"), 0.35), width: 1 }, hoverinfo: "skip" });
  const variants = variantsOf(runs).filter(variant => style(variant.name) && byVariant.has(variant.name));
  for (const variant of variants.toReversed()) traces.push(...variantTraces(variant, byVariant.get(variant.name), style(variant.name)));
  await Plotly.react("curves-plot", traces, layout({
    xaxis: { title: { text: AXES[chosen.axis] }, type: chosen.logx ? "log" : "linear" },
    yaxis: { title: { text: plain(spoken(chosen.metric || "")) }, type: chosen.logy ? "log" : "linear", exponentformat: "power" },
    annotations: all.length ? [] : [{ text: "no run that is shown recorded this", showarrow: false, xref: "paper", yref: "paper", x: .5, y: .5 }],
  }), CONFIG);
  at("curves-plot").setAttribute("aria-label", `${spoken(chosen.metric)} against ${AXES[chosen.axis]}: ${all.length} runs in ${byVariant.size} variants`);
  at("curves-note").textContent = curvesNote([...byVariant.keys()]);
}

function curvesNote(variants) {
  const thinning = `Curves thinned to ${data.points} points: the first, the last, and the lowest and the highest of each of ${data.points / 2 - 1} stretches; values that are not finite are left out.`;
  const bands = "Where a variant has several seeds that finished or still run, the line is their mean and the band reaches from the lowest to the highest, as far as all of them come; thin lines are single runs.";
  return `${bands} ${thinning}${greyNote(variants)}`;
}
