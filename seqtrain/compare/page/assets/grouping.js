// What runs are coloured and grouped by: their variant, or any setting, label, tag, commit or status.

const MARKS = ["label", "tag", "commit", "status"]; // what a run says of itself beside its settings
const NONE = "none";
const MOST_LEVELS = 6, BINS = 4; // a number of more values is cut into bins

/* The values of a key by which runs are coloured: a number of many values is cut into bins of equally many runs. */
function binned(values) {
  const numbers = values.every(value => typeof value === "number");
  if (!numbers || new Set(values).size <= MOST_LEVELS) return values.map(value => JSON.stringify(value));
  const ranked = values.toSorted((a, b) => a - b);
  return values.map(value => Math.floor(ranked.indexOf(value) * BINS / ranked.length));
}

/* What a run has of a key; undefined where it has nothing. */
function keyed(run, key) {
  if (key in run.values) return run.values[key];
  return key === "status" ? run.status : (run.marks || {})[key];
}

/* The keys in which runs of the group differ, each with its words. */
function groupingKeys() {
  const group = data.groups[chosen.group], runs = group.runs.map(index => data.runs[index]);
  const marks = MARKS.filter(key => new Set(runs.map(run => keyed(run, key))).size > 1);
  return [["variant", "variant"], ...group.keys.map(key => [key, data.short[key]]), ...marks.map(key => [key, key])];
}

/* The name of each value: a number of many values is cut into bins, named by their ends. */
function valueNames(values) {
  const present = values.filter(value => value !== undefined && value !== null);
  const bins = binned(present), cut = new Set(bins).size < new Set(present).size, names = new Map();
  for (const [bin, own] of Map.groupBy(present, (_, k) => bins[k])) {
    const ends = cut ? [Math.min(...own), Math.max(...own)] : [];
    for (const value of own) names.set(value, cut && ends[0] < ends[1] ? `${told(ends[0])} to ${told(ends[1])}` : told(own[0]));
  }
  return { names, cut };
}

function inOrder(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

/* How runs are put together. `of` names the group of a run, `names` are those of the runs given, in the order of the
   legend, and `look` says how one is drawn: undefined for what is left grey. */
function grouping(runs) {
  if (chosen.by === "variant") {
    return { key: "", of: run => run.variant, names: variantsOf(runs).map(variant => variant.name), look: style, cut: false };
  }
  // Colours come from all runs of the group: they stay when the filter changes.
  const all = data.groups[chosen.group].runs.map(index => keyed(data.runs[index], chosen.by));
  const { names, cut } = valueNames(all);
  const known = all.filter(value => names.has(value)).toSorted(inOrder).map(value => names.get(value));
  const sorted = [...new Set([...known.filter(name => name !== NONE), NONE])];
  const of = run => names.get(keyed(run, chosen.by)) ?? NONE, present = new Set(runs.map(of));
  const key = data.short[chosen.by] || chosen.by;
  return { key, of, names: sorted.filter(name => present.has(name)), look: name => styleOfSlot(sorted.indexOf(name)), cut };
}

/* What a band over these groups is not. */
function groupingNote(runs, groups) {
  if (!groups.key) return "";
  const mixed = [...Map.groupBy(runs, groups.of).values()].some(own => new Set(own.map(run => run.variant)).size > 1);
  const bins = groups.cut ? " Its values are cut into bins of equally many runs." : "";
  const unlike = mixed ? " A mean and a band here are over runs that differ in other settings too: the band is what was tried, not the spread of seeds, and no interval." : "";
  return ` Coloured and grouped by ${groups.key}.${bins}${unlike}`;
}

/* The legend of groups that are not variants, which have theirs above. */
function showLegend(runs, groups) {
  const counts = Map.groupBy(runs, groups.of);
  const entries = groups.key ? groups.names.map(name => {
    const made = make("span"), count = counts.get(name).length;
    made.append(swatchOf(groups.look(name)), ` ${groups.key}=${name} (${counted(count, "run")})`);
    return made;
  }) : [];
  at("curves-legend").replaceChildren(...entries);
}
