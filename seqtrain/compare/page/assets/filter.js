// Which runs pass the filter: words that all must hold; model=lstm,gr* dim=64 seed=1 status=finished, or a part of a name.

function glob(pattern) {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp("^" + escaped + "$", "i");
}

/* A run's values by the whole key and by its last word. */
function valueOf(run, key) {
  if (key in run.values) return run.values[key];
  if (["status", "reason", "name", "label", "variant"].includes(key)) return run[key];
  const full = Object.keys(run.values).find(known => known.endsWith("." + key));
  return full === undefined ? data.common[key] : run.values[full];
}

function term(word) {
  const cut = word.indexOf("=");
  if (cut > 0) {
    const key = word.slice(0, cut), wanted = word.slice(cut + 1).split(",").map(glob);
    return run => wanted.some(pattern => pattern.test(String(valueOf(run, key) ?? "")));
  }
  const part = word.toLowerCase();
  return run => [run.name, run.label, run.variant, run.status].join(" ").toLowerCase().includes(part);
}

function filtered() {
  const terms = chosen.filter.trim().split(/\s+/).filter(Boolean).map(term);
  return data.groups[chosen.group].runs.map(index => data.runs[index]).filter(run => terms.every(fits => fits(run)));
}

const shownRuns = () => filtered().filter(run => !chosen.hidden.includes(run.variant));

/* The group's variants that have a run among these, best first. */
function variantsOf(runs) {
  const present = new Set(runs.map(run => run.variant));
  return data.groups[chosen.group].variants.filter(variant => present.has(variant.name));
}

