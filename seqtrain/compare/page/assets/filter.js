// Which runs pass the filter: words that all must hold, by the rules of `seqtrain compare --where` (filters.py), or
// a part of a name. A word that is not understood filters nothing, and is said.

const CONDITION = new RegExp(`^${data.known.grammar.condition}$`, "s");
const NUMBER = new RegExp(`^(?:${data.known.grammar.number})$`, "i");
const ORDERS = { ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, "<": (a, b) => a < b };
const MOST_TOLD = 4; // values that a message lists

/* A run's value by a whole key; null where it has none. */
function valueOf(run, key) {
  if (key === "variant") return run.variant;
  if (data.known.figures.includes(key)) return (key in run.asked ? run.asked[key] : run[key]) ?? null;
  if (key in run.asked.settings) return run.asked.settings[key];
  return (key in data.common ? data.common[key] : run.asked.metrics[key]) ?? null;
}

function asNumber(value) {
  if (typeof value === "number") return value;
  return typeof value === "string" && NUMBER.test(value) ? Number(value) : null;
}

/* A value as the command line writes it; lists come as Python writes them. */
function written(value) {
  if (value === null || value === undefined) return "null";
  const text = String(value);
  return text.startsWith("[") ? text.replace(/['\s]/g, "") : text;
}

function glob(pattern) {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp("^" + escaped + "$", "is");
}

function isOneOf(value, wanted) {
  const text = written(value), number = asNumber(value);
  if (text.toLowerCase() === wanted.toLowerCase()) return true;
  return wanted.split(",").some(pattern => (number !== null && number === asNumber(pattern)) || glob(pattern).test(text));
}

function sayWhich(key) {
  const ends = [...new Set(Object.values(data.known.words))].filter(whole => whole.endsWith("." + key));
  return ends.length ? "; say which: " + ends.join(", ") : "";
}

/* What a word asks for: `fits` of a run, or `fault`, why it asks for nothing. */
function term(word) {
  const parts = CONDITION.exec(word), part = word.toLowerCase();
  if (!parts) {
    if (/^(!=|[=<>])/.test(word)) return { word, fault: `${word}: a key is expected before the sign, such as model=lstm` };
    return { word, fits: run => [run.name, run.label, run.variant, run.status].join(" ").toLowerCase().includes(part) };
  }
  const [key, sign, wanted] = [parts[1].trim(), parts[2], parts[3].trim()], order = ORDERS[sign];
  const whole = key === "variant" ? key : Object.hasOwn(data.known.words, key) ? data.known.words[key] : null;
  if (order && asNumber(wanted) === null) {
    return { word, fault: `${word}: a number is expected after ${sign}, such as ${key}${sign}0.003` };
  }
  if (whole === null) return { word, fault: `${word}: no run has ${key}${sayWhich(key)}` };
  if (!order) return { word, fits: run => isOneOf(valueOf(run, whole), wanted) === (sign === "=") };
  const values = data.runs.map(run => valueOf(run, whole)), bound = asNumber(wanted);
  if (values.every(value => asNumber(value) === null)) {
    const told = [...new Set(values.map(written))].slice(0, MOST_TOLD).join(", ");
    return { word, fault: `${word}: ${key} is no number in any run, but ${told}; use = or !=` };
  }
  return { word, fits: run => { const value = asNumber(valueOf(run, whole)); return value !== null && order(value, bound); } };
}

/* The words of the filter; `lr > 0.003` is one of them. */
function terms() {
  const text = chosen.filter.trim().replace(/\s*(>=|<=|!=|=|>|<)\s*/g, "$1");
  return text.split(/\s+/).filter(Boolean).map(term);
}

const groupRuns = () => data.groups[chosen.group].runs.map(index => data.runs[index]);

function filtered() {
  const asked = terms().filter(each => !each.fault);
  return groupRuns().filter(run => asked.every(each => each.fits(run)));
}

/* What the filter leaves unsaid: words that were not understood, or what each word alone leaves where all leave none. */
function tellFilter() {
  const asked = terms(), faults = asked.filter(each => each.fault).map(each => each.fault);
  const runs = groupRuns(), sound = asked.filter(each => !each.fault);
  const words = faults.map(fault => `Not understood, and left out: ${fault}`);
  if (sound.length && !filtered().length) {
    const alone = sound.map(each => `${each.word} ${runs.filter(each.fits).length}`);
    words.push(`No run of ${runs.length} is so. Runs that each word alone leaves: ${alone.join(", ")}.`);
  }
  at("filter-fault").textContent = words.join(" ");
  at("filter-fault").hidden = !words.length;
  at("filter").setAttribute("aria-invalid", faults.length > 0);
}

const shownRuns = () => filtered().filter(run => !chosen.hidden.includes(run.variant));

/* The group's variants that have a run among these, best first. */
function variantsOf(runs) {
  const present = new Set(runs.map(run => run.variant));
  return data.groups[chosen.group].variants.filter(variant => present.has(variant.name));
}
