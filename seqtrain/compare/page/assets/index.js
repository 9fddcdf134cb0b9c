// The list of sweeps: filtered, newest first, and renewed while runs go on.

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

const COLUMNS = {
  sweep: row => row.name, "last record": row => row.when, runs: row => String(row.runs), status: row => row.status, task: row => row.task,
  "best variant": row => row.best || row.fault || "none yet", value: row => row.value === null ? "" : String(Number(row.value.toPrecision(5))),
  metric: row => row.metric ?? "", seeds: row => row.seeds ? String(row.seeds) : "",
};
const cells = row => Object.values(COLUMNS).map(of => of(row));

function show() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.rows.filter(row => words.every(word => cells(row).join(" ").toLowerCase().includes(word)));
  const lines = rows.map(row => tableRow([[make("a", row.name, { href: row.address })], ...cells(row).slice(1)]));
  at("sweeps").replaceChildren(tableHead(Object.keys(COLUMNS)), make("tbody", lines));
  at("count").textContent = rows.length === data.rows.length ? `${rows.length} sweeps` : `${rows.length} of ${data.rows.length} sweeps`;
}

async function listen() {
  const answer = await news();
  if (answer !== undefined) at("about").textContent = answer?.ok || answer?.status === 304 ? "live" : "seqtrain serve has stopped; this is its last version";
  if (answer?.status === 200) {
    const told = parsed(await answer.text()), active = document.activeElement?.getAttribute("href");
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
