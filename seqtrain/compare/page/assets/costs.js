// The metric against what it cost, or against any option.

const atEnds = data.equal && ` Each run counts as it was at its end, not ${data.equal} as in the conclusion.`;
const MOST_LISTED = 4; // variants in a sentence
const JITTER = 0.5; // of the room between two words, so that runs with the same value are seen apart

// How a variant stands in the Pareto front of the conclusion, in words, and how its mean is drawn.
const STANDINGS = {
  front: { words: "on the Pareto front", size: 15, opacity: 1, open: "" },
  perhaps: { words: "on the Pareto front by the means, perhaps by chance", size: 13, opacity: 1, open: "-open" },
  near: { words: "not on the front by the means, but not shown to be behind", size: 10, opacity: .6, open: "" },
  behind: { words: "behind the front", size: 10, opacity: .6, open: "" },
};
const NO_STANDING = { words: "", size: 11, opacity: .8, open: "" };

/* Why the conclusion's front is not that of this picture; "" where it is. */
function noFront() {
  if (data.equal) return `The Pareto front is not drawn: it is ${data.equal}, and costs here are those at the end.`;
  return chosen.which === data.which ? "" : `The Pareto front is not drawn: it is known of the ${data.which} metric alone.`;
}

const standingOf = variant => noFront() ? undefined : data.groups[chosen.group].variants.find(each => each.name === variant)?.pareto[chosen.cost];

function listed(names, nothing) {
  return names.slice(0, MOST_LISTED).join(", ") + (names.length > MOST_LISTED ? ` and ${names.length - MOST_LISTED} more` : "") || nothing;
}

/* The option that x is; "" where it is a cost. */
const optionOf = () => chosen.cost.startsWith("=") ? chosen.cost.slice(1) : "";

function fillCosts() {
  const group = data.groups[chosen.group];
  if (optionOf() && !group.keys.includes(optionOf())) chosen.cost = "parameters";
  const parts = { cost: Object.entries(COSTS), option: group.keys.map(key => ["=" + key, data.short[key]]) };
  at("cost").replaceChildren(...Object.entries(parts).filter(([, own]) => own.length).map(([label, own]) => {
    const made = make("optgroup", null, { label });
    made.append(...own.map(([value, words]) => make("option", words, { value, selected: value === chosen.cost })));
    return made;
  }));
}

/* A number that was searched over a wide range is best seen on a log axis; the box says so, and can be unticked. */
function suggestLog() {
  const key = optionOf(), values = key ? shownRuns().map(run => run.values[key]).filter(value => value !== undefined && value !== null) : [];
  const wide = values.length > 0 && values.every(value => typeof value === "number" && value > 0) && Math.max(...values) / Math.min(...values) > 20;
  chosen.logcost = at("logcost").checked = wide;
}

/* Where runs stand on x: as numbers, or one place for each word with a little jitter that is always the same. */
function placed(runs) {
  const key = optionOf(), of = run => key ? run.values[key] : run[chosen.cost];
  const known = runs.filter(run => of(run) !== undefined && of(run) !== null), all = known.map(of);
  if (!key || all.every(value => typeof value === "number")) {
    return { points: known.map(run => ({ run, value: of(run), x: of(run) })), words: null };
  }
  const words = [...new Set(all.toSorted(inOrder).map(told))];
  const shifted = run => ((run.index * 0.61803398875) % 1 - 0.5) * JITTER; // the golden ratio spreads evenly
  return { points: known.map(run => ({ run, value: told(of(run)), x: words.indexOf(told(of(run))) + shifted(run) })), words };
}

function costPoints(runs) {
  const { points, words } = placed(runs);
  const found = points.map(point => ({ ...point, y: point.run[chosen.which] }));
  const log = chosen.logcost && !words;
  return { points: found.filter(point => point.y !== null && point.y !== undefined && (!log || point.x > 0)), words, log };
}

function means(points) {
  const finished = points.filter(point => point.run.status === "finished");
  return [...Map.groupBy(finished, point => point.run.variant)].map(([variant, own]) => ({
    variant, count: own.length,
    x: own.reduce((sum, point) => sum + point.x, 0) / own.length, y: own.reduce((sum, point) => sum + point.y, 0) / own.length,
  }));
}

/* Of each value of an option that several finished runs have their mean. */
function valueMeans(points, words) {
  const finished = points.filter(point => point.run.status === "finished");
  const several = [...Map.groupBy(finished, point => point.value)].filter(([, own]) => own.length > 1);
  return several.map(([value, own]) => ({
    value, count: own.length, x: words ? words.indexOf(value) : value, y: own.reduce((sum, point) => sum + point.y, 0) / own.length,
  }));
}

function runTrace(points, look, words) {
  return {
    x: points.map(point => point.x), y: points.map(point => point.y), mode: "markers",
    text: points.map(point => `${plain(point.run.variant)}<br>${plain(point.run.name)} (${plain(point.run.status)})`), customdata: points.map(point => plain(told(point.value))),
    marker: {
      size: optionOf() ? 9 : 6, opacity: optionOf() ? 0.8 : 0.55, color: points.map(point => look(point.run).color),
      symbol: points.map(point => look(point.run).symbol + (point.run.status === "finished" ? "" : "-open")),
    },
    hovertemplate: "%{text}<br>" + words,
  };
}

function meanTrace(middle, words, marker, name) {
  return {
    x: middle.map(point => point.x), y: middle.map(point => point.y), mode: "markers", text: middle.map(name), customdata: middle.map(point => plain(told(point.value ?? point.x))),
    marker: { line: { color: ink("paper"), width: 1.5 }, ...marker }, hovertemplate: "%{text}<br>" + words,
  };
}

function drawCosts() {
  const group = data.groups[chosen.group], runs = shownRuns(), { points, words, log } = costPoints(runs), key = optionOf();
  const groups = grouping(runs), other = { color: ink("rest"), symbol: "circle" }, look = run => groups.look(groups.of(run)) || other;
  const title = key ? data.short[key] : COSTS[chosen.cost];
  const hover = `${plain(named(group.metric))} %{y:.5~g}, ${plain(title)} ${key ? "%{customdata}" : "%{x:.4~s}"}<extra></extra>`;
  const middle = key ? valueMeans(points, words) : means(points), edge = key ? [] : frontPoints(middle);
  const best = {
    x: edge.map(point => point.x), y: edge.map(point => point.y), mode: "lines", hoverinfo: "skip",
    line: { shape: "hv", color: ink("soft"), width: 1.5, dash: "dot" },
  };
  const own = variant => look(points.find(point => point.run.variant === variant).run); // all runs of a variant are alike in what may group them, or nearly
  const bars = { symbol: "line-ew", size: 34, line: { color: ink("ink"), width: 2.5 } };
  const stand = point => STANDINGS[standingOf(point.variant)] ?? NO_STANDING;
  const dots = key ? {} : {
    size: middle.map(point => stand(point).size), opacity: middle.map(point => stand(point).opacity), color: middle.map(point => own(point.variant).color),
    symbol: middle.map(point => own(point.variant).symbol + stand(point).open),
    line: { color: middle.map(point => stand(point).open ? own(point.variant).color : ink("paper")), width: middle.map(point => stand(point).open ? 2.5 : 1.5) },
  };
  const name = point => key ? `mean of ${point.count}` : [`${plain(point.variant)}, mean of ${point.count}`, stand(point).words].filter(Boolean).join("<br>");
  const traces = [best, runTrace(points, look, hover), meanTrace(middle, hover, key ? bars : dots, name)];
  at("costs-note").textContent = (key ? optionNote(runs, points, middle, title) : costNote(group, edge)) + costsGrey(points, groups) + atEnds;
  at("costs-plot").setAttribute("aria-label", at("costs-note").textContent);
  const nothing = points.length ? [] : [{ text: `no run that is shown has a ${chosen.which} value here`, showarrow: false, xref: "paper", yref: "paper", x: .5, y: .5 }];
  const ticks = words ? { tickvals: words.map((_, k) => k), ticktext: words.map(word => plain(clipped(word))), range: [-0.6, words.length - 0.4] } : { tickvals: null, ticktext: null };
  const metric = chosen.which === "test" ? "test " + named(group.metric) : `${chosen.which} ${spoken("validation/" + group.metric)}`;
  return Plotly.react("costs-plot", traces, layout({
    uirevision: zoomKept(chosen.cost, chosen.which, chosen.logcost),
    xaxis: { title: { text: plain(title) }, type: log ? "log" : "linear", ...ticks },
    yaxis: { title: { text: plain(metric) } }, annotations: nothing,
  }), CONFIG);
}

/* The means that are on the front, or perhaps: none where one of them is not shown, for the line would lie. */
function frontPoints(middle) {
  const onFront = data.groups[chosen.group].variants.map(variant => variant.name).filter(name => ["front", "perhaps"].includes(standingOf(name)));
  const found = middle.filter(point => onFront.includes(point.variant));
  return found.length === onFront.length ? found.toSorted((a, b) => a.x - b.x) : [];
}

function costNote(group, edge) {
  const words = ["Large: a variant's mean over the runs that finished; small: its runs, hollow where they did not finish."];
  const known = group.variants.filter(variant => variant.pareto[chosen.cost]), kinds = Map.groupBy(known, variant => variant.pareto[chosen.cost]);
  if (noFront()) return [...words, noFront()].join(" ");
  if (known.length < 2) return [...words, "There is no Pareto front: fewer than two variants that may be compared know both."].join(" ");
  const names = kind => listed((kinds.get(kind) ?? []).map(variant => variant.name), "none");
  words.push(`Pareto front, the variants that none beats in both (${group.mode === "max" ? "more" : "less"} is better), of all ${counted(known.length, "variant")} of the group, whatever the filter leaves. On it for sure, solid: ${names("front")}.`);
  if (kinds.has("perhaps")) words.push(`On it by the means, perhaps by chance, large and hollow: ${names("perhaps")}.`);
  if (kinds.has("near")) words.push(`Not on it by the means, but not shown to be behind: ${names("near")}.`);
  words.push(edge.length ? "Dotted: the front by the means." : "The line of the front is not drawn: not all of it is shown.");
  if (known.some(variant => variant.seeds === 1)) words.push("Of variants with one seed nothing is told apart.");
  return words.join(" ");
}

function optionNote(runs, points, middle, title) {
  const left = runs.length - points.length;
  const bars = middle.length ? ` A bar is the mean of the finished runs with that value; they may differ in other settings too, so a slope may be due to those.` : "";
  const without = left ? ` ${counted(left, "run")} that ${left === 1 ? "has" : "have"} no ${title}, or no such value of the metric${chosen.logcost ? ", or none above 0," : ""} ${left === 1 ? "is" : "are"} left out.` : "";
  return `A point is a run, hollow where it did not finish.${bars}${without}`;
}

/* Says what is grey, and what colours stand for where they are not of variants. */
function costsGrey(points, groups) {
  if (!groups.key) return greyNote([...new Set(points.map(point => point.run.variant))]);
  return ` Coloured by ${groups.key}, as in the legend of the curves.${groupsInGrey([...new Set(points.map(point => groups.of(point.run)))], groups)}`;
}

const clipped = words => words.length > 14 ? words.slice(0, 13) + "…" : words;
