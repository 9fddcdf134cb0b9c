"use strict";
// The list of sweeps: filtered, newest first, and renewed while runs go on.

const at = id => document.getElementById(id);
const data = JSON.parse(at("data").textContent);
const NEWS_EVERY = 2000; // milliseconds
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

const COLUMNS = {
  sweep: row => row.name, "last record": row => row.when, runs: row => String(row.runs), status: row => row.status, task: row => row.task,
  "best variant": row => row.best || row.fault || "none yet", value: row => row.value === null ? "" : String(Number(row.value.toPrecision(5))),
  metric: row => row.metric ?? "", seeds: row => row.seeds ? String(row.seeds) : "",
};

function make(tag, words) {
  const made = document.createElement(tag);
  made.textContent = words;
  return made;
}

function show() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.rows.filter(row => { const text = Object.values(COLUMNS).map(of => of(row)).join(" ").toLowerCase(); return words.every(word => text.includes(word)); });
  const head = make("tr", ""), top = make("thead", ""), body = make("tbody", "");
  for (const title of Object.keys(COLUMNS)) { const made = make("th", title); made.scope = "col"; head.append(made); }
  top.append(head);
  for (const row of rows) {
    const line = make("tr", "");
    for (const [title, of] of Object.entries(COLUMNS)) {
      const cell = make(title === "sweep" ? "th" : "td", title === "sweep" ? "" : of(row));
      if (title === "sweep") { const link = make("a", of(row)); link.href = row.address; cell.scope = "row"; cell.append(link); }
      line.append(cell);
    }
    body.append(line);
  }
  at("sweeps").replaceChildren(top, body);
  at("count").textContent = rows.length === data.rows.length ? `${rows.length} sweeps` : `${rows.length} of ${data.rows.length} sweeps`;
}

async function listen() {
  const answer = document.hidden ? undefined : await fetch("data", { headers: { "If-None-Match": data.mark } }).catch(() => null);
  if (answer !== undefined) at("about").textContent = answer?.ok || answer?.status === 304 ? "live" : "seqtrain serve has stopped: what you see is the last that it showed";
  if (answer?.status === 200) {
    const told = await answer.json(), active = document.activeElement?.getAttribute("href");
    if (!told.rows) { location.reload(); return; } // one sweep is left: its report stands here now
    Object.assign(data, told);
    show();
    if (active) document.querySelector(`#sweeps a[href="${CSS.escape(active)}"]`)?.focus({ preventScroll: true });
  }
  setTimeout(listen, NEWS_EVERY);
}

at("filter").addEventListener("input", show);
show();
setTimeout(listen, NEWS_EVERY);
