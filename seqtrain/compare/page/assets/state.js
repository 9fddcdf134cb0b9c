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
