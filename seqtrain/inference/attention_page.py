"""The page on which maps of attention are explored: one file, no network."""

from __future__ import annotations

from html import escape
from string import Template

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5b6475; --paper: #fbfbf9; --line: #d5d8de;
  --glow: 255, 176, 32; --mark: #1f5fbf; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eceef2; --soft: #a3abba; --paper: #15181e; --line: #3a414d; --glow: 28, 92, 190; --mark: #ffc14d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.15rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: .85rem; margin: 1.25rem 0 .35rem; color: var(--soft); font-weight: 600; }
p { margin: .25rem 0; color: var(--soft); }
.choices { display: flex; flex-wrap: wrap; gap: .75rem 1.5rem; margin: 1rem 0 0; }
label { color: var(--soft); font-size: .85rem; display: grid; gap: .2rem; }
select { font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--line);
  border-radius: .35rem; padding: .35rem .5rem; min-width: 9rem; }
.tokens { display: flex; flex-wrap: wrap; gap: .3rem; }
.tokens button, .tokens span { font: .95rem/1.3 ui-monospace, monospace; white-space: pre; color: var(--ink);
  border: 1px solid var(--line); border-radius: .3rem; padding: .2rem .4rem; background: none;
  max-width: 100%; overflow: hidden; text-overflow: ellipsis; }
.tokens button { cursor: pointer; }
.tokens .chosen { outline: 2px solid var(--mark); outline-offset: 1px; }
table { border-collapse: collapse; margin-top: .25rem; }
td { padding: .1rem .75rem .1rem 0; font-family: ui-monospace, monospace; white-space: pre; }
td + td { text-align: right; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
<h1>$title</h1>
<p>Point at a token, or choose it, to see where it looks: the stronger the colour, the more. $note</p>
<div class="choices">
<label>Layer <select id="layer"></select></label>
<label>Head <select id="head"></select></label>
</div>
<h2 id="from"></h2>
<div class="tokens" id="queries"></div>
<div id="other"><h2>and this is what it looks at</h2><div class="tokens" id="keys"></div></div>
<h2 id="most" aria-live="polite"></h2>
<table><tbody id="best"></tbody></table>
<script type="application/json" id="data">$data</script>
<script>
"use strict";
const maps = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
let chosen = 0;

function shown(token) { return token.trim() === "" ? "\\u2423".repeat(Math.max(token.length, 1)) : token; }

function option(select, value, words) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = words;
  select.append(made);
}

function weights() {
  const heads = maps[at("layer").value].heads, head = at("head").value;
  const rows = head === "mean" ? heads.map(each => each[chosen]) : [heads[head][chosen]];
  return rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length / 1000);
}

function paint() {
  const map = maps[at("layer").value], row = weights();
  const looked = map.same ? at("queries") : at("keys");
  [...at("queries").children].forEach((token, index) => {
    token.classList.toggle("chosen", index === chosen);
    token.setAttribute("aria-pressed", index === chosen);
    token.style.background = "";
  });
  [...looked.children].forEach((token, index) => {
    token.style.background = "rgba(var(--glow), " + (0.95 * Math.sqrt(row[index])).toFixed(3) + ")";
    token.title = (100 * row[index]).toFixed(1) + "%";
  });
  at("most").textContent = "\\u201c" + shown(map.queries[chosen]) + "\\u201d looks most at";
  const order = row.map((_, index) => index).sort((a, b) => row[b] - row[a]).slice(0, 6);
  at("best").replaceChildren(...order.map(index => {
    const line = document.createElement("tr");
    for (const words of [shown(map.keys[index]), "#" + (index + 1), (100 * row[index]).toFixed(1) + "%"]) {
      const cell = document.createElement("td");
      cell.textContent = words;
      line.append(cell);
    }
    return line;
  }));
}

function choose(index) { chosen = index; paint(); }

function lay() {
  const map = maps[at("layer").value];
  chosen = Math.min(chosen, map.queries.length - 1);
  at("head").replaceChildren();
  if (map.heads.length > 1) option(at("head"), "mean", "mean of all");
  map.heads.forEach((_, head) => option(at("head"), head, String(head + 1)));
  at("from").textContent = map.same ? "These tokens look at one another" : "These tokens look at the source";
  at("queries").replaceChildren(...map.queries.map((token, index) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = shown(token);
    made.onmouseenter = made.onfocus = made.onclick = () => choose(index);
    return made;
  }));
  at("other").hidden = map.same;
  at("keys").replaceChildren(...map.keys.map(token => {
    const made = document.createElement("span");
    made.textContent = shown(token);
    return made;
  }));
  paint();
}

maps.forEach((map, index) => option(at("layer"), index, map.name));
at("layer").onchange = lay;
at("head").onchange = paint;
chosen = maps[0].queries.length - 1;
lay();
</script>
</body>
</html>
""")


def page(title: str, note: str, data: str) -> str:
    """The page as text; `data` is JSON in which no `<` stands."""
    return PAGE.substitute(title=escape(title), note=escape(note), data=data)
