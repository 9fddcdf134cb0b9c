"use strict";
// What the report and the index share: their data, elements, and questions for newer data.

const at = id => document.getElementById(id);
// Objects without a prototype: a metric or key of a run may be called "constructor".
const isMap = value => value && typeof value === "object" && !Array.isArray(value);
const parsed = text => JSON.parse(text, (_, value) => isMap(value) ? Object.setPrototypeOf(value, null) : value);
const data = parsed(at("data").textContent);

const isKnown = value => value !== undefined && value !== null;

/* An element that holds words, another element, or a list of both. */
function make(tag, content, properties = {}) {
  const made = document.createElement(tag);
  made.append(...[content].flat().filter(isKnown));
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value; else made.setAttribute(name, value);
  }
  return made;
}

/* The head of a table, and a row: what is no cell yet becomes one, the first of a row its head. */
const cellsOf = (content, tag, scope) => content.map(each => each instanceof Element ? each : make(tag, each, scope ? { scope } : {}));
const tableHead = cells => make("thead", make("tr", cellsOf(cells, "th", "col")));
const tableRow = ([title, ...cells], properties) => make("tr", [...cellsOf([title], "th", "row"), ...cellsOf(cells, "td")], properties);

function svg(tag, properties, content) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...[content].flat().filter(isKnown));
  return made;
}

const NEWS_EVERY = 2000; // milliseconds

/* Newer data than what is shown; null where the server has stopped, undefined where nobody looks. */
const news = () => document.hidden ? undefined : fetch("data", { headers: { "If-None-Match": data.mark } }).catch(() => null);
