// The metric against what it cost.

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
  at("costs-note").textContent = `Large: a variant's mean over the runs that finished; small: its runs, hollow where they did not finish. Dotted: the Pareto front, the variants that none beats in both (${group.mode === "max" ? "more" : "less"} is better): ${listed(edge.map(point => point.variant))}.${greyNote([...new Set(points.map(point => point.run.variant))])}${atEnds}`;
  at("costs-plot").setAttribute("aria-label", at("costs-note").textContent);
  return Plotly.react("costs-plot", traces, layout({
    xaxis: { title: { text: COSTS[chosen.cost] }, type: chosen.logcost ? "log" : "linear" },
    yaxis: { title: { text: plain(`${chosen.which} ${spoken("validation/" + group.metric)}`) } },
  }), CONFIG);
}
