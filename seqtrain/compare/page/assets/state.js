// What the page knows, what the reader has chosen, and which runs that leaves.

const AXES = data.style.axes;
const COSTS = { parameters: "parameters", flops: "training FLOPs", seconds: "training time (s)", tokens: "training tokens" };
const WORDS = data.style.words;

/* A metric by the unit that its task gives it: "bits per byte", "loss (nats a token)". */
function named(metric) {
  const words = WORDS[metric] || metric.replaceAll("_", " "), unit = data.units[metric];
  if (!unit) return words;
  return unit.toLowerCase() === words.toLowerCase() ? unit : `${words} (${unit})`;
}
const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/* A metric in words: "validation/bits_per_byte" is "bits per byte, validation". */
function spoken(metric) {
  const [split, name] = metric.includes("/") ? metric.split("/") : ["", metric];
  return named(name) + (split && ", " + split);
}

/* A number in few characters: 1.2346, 12,345, 1.2e+14. */
function told(value, digits = 4) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e9 || (size && size < 1e-3)) return value.toExponential(2);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}

/* Data that is large is packed, and unpacked when it is first asked for. */
const unpacked = new Map();
function block(name) {
  if (!unpacked.has(name)) unpacked.set(name, unpack(at("block-" + name).textContent));
  return unpacked.get(name);
}

async function unpack(text) {
  const packed = atob(text.trim()), bytes = new Uint8Array(packed.length);
  for (let k = 0; k < packed.length; k++) bytes[k] = packed.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return parsed(await new Response(stream).text());
}

function summed(differences) {
  let sum = 0;
  return differences.map(difference => sum += difference);
}

// ---- choices: kept in the address, so that they live through a reload and can be handed on ----

const chosen = {
  group: 0, metric: "", axis: data.x || "steps", logx: false, logy: false,
  cost: data.x in COSTS ? data.x : "parameters", which: data.which, logcost: false,
  smooth: 0, outliers: "auto", by: "variant", alone: false, charts: null, logs: [],
  filter: "", sort: "", hidden: [], picked: null, theme: "", step: "", whole: false,
};

const LISTS = ["hidden", "picked", "charts", "logs"];

function recall() {
  const sizes = data.groups.map(group => group.runs.length);
  chosen.group = Math.max(sizes.indexOf(Math.max(...sizes)), 0);
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const [key, value] of Object.entries(chosen)) {
    if (!kept.has(key)) continue;
    const text = kept.get(key);
    if (LISTS.includes(key)) chosen[key] = text ? text.split("\n") : [];
    else if (typeof value === "boolean") chosen[key] = text === "true";
    else chosen[key] = typeof value === "number" ? Number(text) || 0 : text;
  }
  if (!data.groups[chosen.group]) chosen.group = 0;
  if (!(chosen.axis in AXES)) chosen.axis = "steps";
  if (!(chosen.cost in COSTS || chosen.cost.startsWith("="))) chosen.cost = "parameters"; // enterGroup knows the options
  if (!["best", "test"].includes(chosen.which)) chosen.which = "final";
  if (!["clipped", "shown"].includes(chosen.outliers)) chosen.outliers = "auto";
  chosen.smooth = Math.min(Math.max(chosen.smooth, 0), 20);
}

function remember() {
  const kept = new URLSearchParams();
  for (const [key, value] of Object.entries(chosen)) {
    if (Array.isArray(value) ? value.length || key === "picked" || key === "charts" : value || key === "group") kept.set(key, Array.isArray(value) ? value.join("\n") : value);
  }
  history.replaceState(null, "", "#" + kept);
}

const toggled = (list, value) => list.includes(value) ? list.filter(each => each !== value) : [...list, value];

// Colours follow variants: what is shown keeps its style, what is new takes the first that is free.

const PALETTES = data.style.palettes, DASHES = data.style.dashes, SYMBOLS = data.style.symbols;
const MOST_STYLES = PALETTES.light.length * DASHES.length;
const slots = new Map();

function allot() {
  const variants = data.groups[chosen.group].variants, wanted = variants.length > MOST_STYLES ? variantsOf(filtered()) : variants;
  const names = new Set(wanted.map(variant => variant.name));
  for (const name of slots.keys()) if (!names.has(name)) slots.delete(name);
  const taken = new Set(slots.values());
  const free = [...Array(MOST_STYLES).keys()].filter(slot => !taken.has(slot));
  for (const name of names) if (!slots.has(name) && free.length) slots.set(name, free.shift());
}

/* How a variant is drawn; undefined for those that are left grey, when there are more variants than styles. */
function style(variant) {
  const slot = slots.get(variant);
  return slot === undefined ? undefined : styleOfSlot(slot);
}

function styleOfSlot(slot) {
  if (slot >= MOST_STYLES) return undefined;
  const palette = PALETTES[theme()], kind = slot % palette.length;
  return { color: palette[kind], dash: DASHES[Math.floor(slot / palette.length)], symbol: SYMBOLS[kind] };
}

/* Says which of these variants are grey. */
function greyNote(variants) {
  const grey = variants.filter(variant => !style(variant)).length;
  return grey ? ` ${grey} of ${variants.length} variants are grey because there are too few colours; filter to see them.` : "";
}

function theme() {
  return chosen.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

const ink = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

const swatch = variant => swatchOf(style(variant));

function swatchOf(style) {
  const look = style || { color: ink("rest"), dash: "solid" };
  const gaps = { solid: "", dash: "6 3", dot: "2 3", dashdot: "7 3 2 3" }[look.dash];
  const shapes = {
    circle: "M15 3a4 4 0 1 0 .01 0Z", square: "M11 3h8v8h-8Z", diamond: "M15 2l5 5-5 5-5-5Z", "triangle-up": "M15 2l5 9h-10Z",
    x: "M11 4l1-1 3 3 3-3 1 1-3 3 3 3-1 1-3-3-3 3-1-1 3-3Z", star: "M15 1.5l1.6 3.7 4 .4-3 2.7.9 4-3.5-2.1-3.5 2.1.9-4-3-2.7 4-.4Z",
  };
  return svg("svg", { viewBox: "0 0 30 14", class: "swatch", "aria-hidden": "true" }, [
    svg("path", { d: "M1 7H29", stroke: look.color, "stroke-width": 2.2, "stroke-dasharray": gaps }),
    look.symbol ? svg("path", { d: shapes[look.symbol], fill: look.color }) : null,
  ]);
}

// Which runs pass the filter: words that all must hold, by the rules of `seqtrain compare --where` (filters.py), or
// a part of a name. A word that is not understood filters nothing, and is said.

const CONDITION = new RegExp(`^${data.known.grammar.condition}$`, "s");
const NUMBER = new RegExp(`^(?:${data.known.grammar.number})$`, "i");
const ORDERS = { ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, "<": (a, b) => a < b };
const MOST_TOLD = 4; // values that a message lists

/* A run's value by a whole key; null where it has none. */
function valueOf(run, key) {
  if (key === "variant") return run.variant;
  if (data.known.figures.includes(key)) return run[key] ?? null;
  if (key in run.settings) return run.settings[key];
  return (key in data.common ? data.common[key] : run.metrics[key]) ?? null;
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

/* Return the meaning of a word: `fits`, a predicate of runs, or `fault`, the reason why it is invalid. */
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
    return { word, fault: `${word}: ${key} is not a number in any run (${told}); use = or !=` };
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
  const words = faults.map(fault => `Ignored: ${fault}`);
  if (sound.length && !filtered().length) {
    const alone = sound.map(each => `${each.word} ${runs.filter(each.fits).length}`);
    words.push(`None of ${runs.length} runs matches. Runs that match each word alone: ${alone.join(", ")}.`);
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
