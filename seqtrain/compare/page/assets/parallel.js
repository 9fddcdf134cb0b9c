// Options side by side (parallel coordinates).

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
  const weight = Object.fromEntries(group.importance.options.map(each => [each.key, each.epsilon ?? 0]));
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
  const byVariant = Map.groupBy(runs.map((run, k) => ({ run, k })), each => style(each.run.variant) ? each.run.variant : "");
  const traces = [...byVariant].toReversed().map(([variant, own]) => {
    const look = style(variant) || { color: ink("rest"), dash: "solid" };
    const each = own.map(({ run, k }) => {
      const known = all.map((_, place) => place).filter(place => all[place].places[k] !== null);
      return { name: `${plain(run.variant)}<br>${plain(run.name)}: ${told(run.final)}`, x: known, y: known.map(place => all[place].places[k]) };
    });
    return { ...joined(each), line: { color: veiled(look.color, variant ? 0.75 : 0.3), width: variant ? 1.6 : 1, dash: look.dash }, hovertemplate: "%{text}<extra></extra>" };
  });
  at("parallel-plot").style.minWidth = `${all.length * 7.5}rem`;
  const dropped = group.keys.length + 1 - all.length;
  at("parallel-note").textContent = "A line is a run; it joins the options that differ and ends at its metric. A run that has no such option passes it by." + (all.length && dropped > 0 ? ` ${dropped} options of least weight (epsilon squared, below) are left out.` : "") + greyNote([...new Set(runs.map(run => run.variant))]);
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
