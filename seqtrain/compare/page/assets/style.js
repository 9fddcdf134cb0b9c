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
