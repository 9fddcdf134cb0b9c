"use strict";
// What the page knows, and what the reader has chosen.

const at = id => document.getElementById(id);
// Objects without a prototype: a metric or key of a run may be called "constructor".
const isMap = value => value && typeof value === "object" && !Array.isArray(value);
const parsed = text => JSON.parse(text, (_, value) => isMap(value) ? Object.setPrototypeOf(value, null) : value);
const data = parsed(at("data").textContent);

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

function make(tag, words, properties = {}) {
  const made = document.createElement(tag);
  if (words !== undefined && words !== null) made.textContent = words;
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value; else made.setAttribute(name, value);
  }
  return made;
}

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
  return grey ? ` ${grey} of ${variants.length} variants are grey, for want of colours: filter to see them.` : "";
}

function theme() {
  return chosen.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

const ink = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

const swatch = variant => swatchOf(style(variant));

function swatchOf(style) {
  const look = style || { color: ink("rest"), dash: "solid" };
  const gaps = { solid: "", dash: "6 3", dot: "2 3", dashdot: "7 3 2 3" }[look.dash];
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("viewBox", "0 0 30 14");
  made.setAttribute("class", "swatch");
  made.setAttribute("aria-hidden", "true");
  const shapes = {
    circle: "M15 3a4 4 0 1 0 .01 0Z", square: "M11 3h8v8h-8Z", diamond: "M15 2l5 5-5 5-5-5Z", "triangle-up": "M15 2l5 9h-10Z",
    x: "M11 4l1-1 3 3 3-3 1 1-3 3 3 3-1 1-3-3-3 3-1-1 3-3Z", star: "M15 1.5l1.6 3.7 4 .4-3 2.7.9 4-3.5-2.1-3.5 2.1.9-4-3-2.7 4-.4Z",
  };
  for (const [d, how] of [["M1 7H29", { stroke: look.color, "stroke-width": 2.2, "stroke-dasharray": gaps }], [shapes[look.symbol], { fill: look.color }]]) {
    if (!d) continue;
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", d);
    for (const [name, value] of Object.entries(how)) path.setAttribute(name, value);
    made.append(path);
  }
  return made;
}
