// The metric against what it cost, or against any option.

const atEnds = data.equal && ` Values are those at the end of each run, not ${data.equal} as in the conclusion.`;
const MOST_LISTED = 4; // variants in a sentence

// How a variant stands in the Pareto front of the conclusion, in words, and how its mean is drawn.
const STANDINGS = {
  front: { words: "on the Pareto front", size: 15, opacity: 1, open: "" },
  perhaps: { words: "on the Pareto front by its mean, perhaps by chance", size: 13, opacity: 1, open: "-open" },
  near: { words: "not on the front by its mean, no significant difference from it", size: 10, opacity: .6, open: "" },
  behind: { words: "behind the front", size: 10, opacity: .6, open: "" },
};
const NO_STANDING = { words: "", size: 11, opacity: .8, open: "" };

/* Why the conclusion's front is not that of this picture; "" where it is. */
function noFront() {
  if (data.equal) return `The Pareto front is not drawn: it is ${data.equal}, and costs here are those at the end.`;
  return chosen.which === data.which ? "" : `The Pareto front is not drawn: it is known for the ${data.which} metric only.`;
}

const standingOf = variant => noFront() ? undefined : data.groups[chosen.group].variants.find(each => each.name === variant)?.pareto[chosen.cost];

function listed(names, nothing) {
  return names.slice(0, MOST_LISTED).join(", ") + (names.length > MOST_LISTED ? ` and ${names.length - MOST_LISTED} more` : "") || nothing;
}

/* What x may be: a cost, or an option that is a number in every run that has it. */
function fillCosts() {
  const group = data.groups[chosen.group], runs = group.runs.map(index => data.runs[index]);
  const options = group.keys.filter(key => runs.every(run => typeof (run.settings[key] ?? 0) === "number"));
  const known = [...Object.entries(COSTS), ...options.map(key => ["=" + key, data.short[key]])];
  if (!known.some(([key]) => key === chosen.cost)) chosen.cost = "parameters";
  fill("cost", known, chosen.cost);
}

function costPoints(runs) {
  const key = chosen.cost.startsWith("=") ? chosen.cost.slice(1) : "";
  const points = runs.map(run => ({ run, x: key ? run.settings[key] : run[chosen.cost], y: run[chosen.which] }));
  return points.filter(({ x, y }) => isKnown(x) && isKnown(y) && (!chosen.logcost || x > 0));
}

function means(points) {
  const finished = points.filter(point => point.run.status === "finished");
  return [...Map.groupBy(finished, point => point.run.variant)].map(([variant, own]) => ({
    variant, count: own.length,
    x: own.reduce((sum, point) => sum + point.x, 0) / own.length, y: own.reduce((sum, point) => sum + point.y, 0) / own.length,
  }));
}

function drawCosts() {
  const group = data.groups[chosen.group], runs = shownRuns(), points = costPoints(runs), middle = means(points), edge = frontPoints(middle);
  const groups = grouping(runs), grey = { color: ink("rest"), symbol: "circle" }, look = run => groups.look(groups.of(run)) || grey;
  const title = COSTS[chosen.cost] ?? data.short[chosen.cost.slice(1)];
  const hovertemplate = `%{text}<br>${plain(named(group.metric))} %{y:.5~g}, ${plain(title)} %{x:.4~g}<extra></extra>`;
  const best = {
    x: edge.map(point => point.x), y: edge.map(point => point.y), mode: "lines", hoverinfo: "skip",
    line: { shape: "hv", color: ink("soft"), width: 1.5, dash: "dot" },
  };
  const single = {
    x: points.map(point => point.x), y: points.map(point => point.y), mode: "markers", hovertemplate,
    text: points.map(point => `${plain(point.run.variant)}<br>${plain(point.run.name)} (${plain(point.run.status)})`),
    marker: {
      size: 6, opacity: 0.55, color: points.map(point => look(point.run).color),
      symbol: points.map(point => look(point.run).symbol + (point.run.status === "finished" ? "" : "-open")),
    },
  };
  const own = middle.map(point => look(points.find(each => each.run.variant === point.variant).run));
  const stands = middle.map(point => STANDINGS[standingOf(point.variant)] ?? NO_STANDING);
  const large = {
    x: middle.map(point => point.x), y: middle.map(point => point.y), mode: "markers", hovertemplate,
    text: middle.map((point, k) => [`${plain(point.variant)}, mean of ${point.count}`, stands[k].words].filter(Boolean).join("<br>")),
    marker: {
      size: stands.map(stand => stand.size), opacity: stands.map(stand => stand.opacity), color: own.map(each => each.color),
      symbol: own.map((each, k) => each.symbol + stands[k].open),
      line: { color: own.map((each, k) => stands[k].open ? each.color : ink("paper")), width: stands.map(stand => stand.open ? 2.5 : 1.5) },
    },
  };
  at("costs-note").textContent = costNote(group, edge, runs.length - points.length, title) + costsGrey(points, groups) + atEnds;
  at("costs-plot").setAttribute("aria-label", at("costs-note").textContent);
  const nothing = points.length ? [] : [{ text: `none of the shown runs has a ${chosen.which} value here`, showarrow: false, xref: "paper", yref: "paper", x: .5, y: .5 }];
  const metric = chosen.which === "test" ? "test " + named(group.metric) : `${chosen.which} ${spoken("validation/" + group.metric)}`;
  return Plotly.react("costs-plot", [best, single, large], layout({
    uirevision: zoomKept(chosen.cost, chosen.which, chosen.logcost),
    xaxis: { title: { text: plain(title) }, type: chosen.logcost ? "log" : "linear" },
    yaxis: { title: { text: plain(metric) } }, annotations: nothing,
  }), CONFIG);
}

/* The means that are on the front, or perhaps: none where one of them is not shown, for the line would lie. */
function frontPoints(middle) {
  const onFront = data.groups[chosen.group].variants.map(variant => variant.name).filter(name => ["front", "perhaps"].includes(standingOf(name)));
  const found = middle.filter(point => onFront.includes(point.variant));
  return found.length === onFront.length ? found.toSorted((a, b) => a.x - b.x) : [];
}

function costNote(group, edge, left, title) {
  const words = ["Large: the mean of a variant over its finished runs. Small: single runs, hollow if unfinished."];
  if (left) words.push(`Left out: ${counted(left, "run")} without the metric, or without ${chosen.logcost ? "a positive " : ""}${title}.`);
  if (!(chosen.cost in COSTS)) return [...words, "Runs may differ in other settings too, which may cause a slope."].join(" ");
  const known = group.variants.filter(variant => variant.pareto[chosen.cost]), kinds = Map.groupBy(known, variant => variant.pareto[chosen.cost]);
  if (noFront()) return [...words, noFront()].join(" ");
  if (known.length < 2) return [...words, "No Pareto front: fewer than two comparable variants have both."].join(" ");
  const names = kind => listed((kinds.get(kind) ?? []).map(variant => variant.name), "none");
  words.push(`The Pareto front contains the variants that no other variant beats in both metric (${group.mode === "max" ? "more" : "less"} is better) and cost. It is computed from all ${counted(known.length, "variant")} of the group; the filter does not change it. Certainly on it (large, solid): ${names("front")}.`);
  if (kinds.has("perhaps")) words.push(`On it by the means, perhaps by chance (large, hollow): ${names("perhaps")}.`);
  if (kinds.has("near")) words.push(`Not on it by the means, no significant difference from it: ${names("near")}.`);
  words.push(edge.length ? "Dotted line: the front of the means." : "The line of the front is not drawn because some of its variants are hidden.");
  if (known.some(variant => variant.seeds === 1)) words.push("One seed shows no significant difference.");
  return words.join(" ");
}

/* Says what is grey, and what colours stand for where they are not of variants. */
function costsGrey(points, groups) {
  if (!groups.key) return greyNote([...new Set(points.map(point => point.run.variant))]);
  return ` Coloured by ${groups.key}, as in the legend of the curves.${groupsInGrey([...new Set(points.map(point => groups.of(point.run)))], groups)}`;
}
