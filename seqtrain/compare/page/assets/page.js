// A page that `seqtrain serve` gives asks for newer data, and shows them where it stands.

async function listen() {
  const answer = await news();
  const lost = answer === null || (answer && !answer.ok && answer.status !== 304);
  try {
    if (answer?.status === 200) await (last = last.then(async () => take(parsed(await answer.text()))).catch(error => console.error(error)));
    if (answer !== undefined) {
      at("about").textContent = data.about + (lost ? " · seqtrain serve has stopped; this is its last version" : ` · live, as of ${data.made}`);
    }
  } finally {
    setTimeout(listen, NEWS_EVERY);
  }
}

/* Takes newer data; choices, focus and what was unfolded stay as they are. */
async function take({ known, blocks }) {
  if (known?.script !== data.script) {
    remember();
    location.reload(); // another version of seqtrain, or an index: its page knows other things
    return;
  }
  const ownRun = data.runs[data.groups[chosen.group].runs[0]].name;
  Object.assign(data, known);
  unpacked.clear();
  for (const [id, text] of Object.entries(blocks)) (at(id) ?? document.body.appendChild(make("script", null, { id, type: "text/plain" }))).textContent = text;
  chosen.group = Math.max(data.groups.findIndex(group => group.runs.some(index => data.runs[index].name === ownRun)), 0);
  const folded = () => [...at("groups").querySelectorAll("details")], open = folded().map(each => each.open);
  await keepingFocus(() => {
    fillGroups();
    enterGroup();
    showGroups();
    allViews();
  });
  await catchUp();
  for (const [k, details] of folded().entries()) details.open = open[k] ?? false;
}

/* Draws a part anew; where the control that had the focus is replaced, its successor of the same label gets it. */
async function keepingFocus(draw) {
  const label = document.activeElement?.getAttribute("aria-label");
  await draw();
  if (label && document.activeElement === document.body) document.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus({ preventScroll: true });
}

// What happens when: the first picture, what the reader does, and news from the server.

const VIEWS = {
  curves: drawCurves, charts: drawCharts, costs: drawCosts, importance: showImportance, table: showRuns,
  samples: showSamples, pictures: showPictures, diff: showDiff, environment: showEnvironment,
};
const near = new Set(["curves"]), stale = new Set(); // the curves are drawn at once, wherever they stand
let last = Promise.resolve();

/* Draws these anew, now or when they are scrolled to; keeps the choices. */
function refresh(...names) {
  for (const name of names) stale.add(name);
  remember();
  last = last.then(catchUp);
  return last;
}

async function catchUp() {
  for (const name of Object.keys(VIEWS).filter(each => near.has(each) && stale.has(each))) {
    stale.delete(name);
    await keepingFocus(VIEWS[name]); // each by itself: a control may get the focus while another part is drawn
    at(name).dataset.drawn = "yes";
  }
}

const watcher = new IntersectionObserver(seen => {
  for (const { target, isIntersecting } of seen) near[isIntersecting || target.id === "curves" ? "add" : "delete"](target.id);
  last = last.then(catchUp);
}, { rootMargin: "300px" });

/* What is at hand at once is shown anew; what is drawn becomes stale. */
function allViews() {
  allot();
  showVariants();
  tellFilter();
  const shown = filtered().length, all = data.groups[chosen.group].runs.length;
  at("count").textContent = shown === all ? counted(all, "run") : `${shown} of ${counted(all, "run")}`;
  for (const name of Object.keys(VIEWS)) stale.add(name);
  remember();
}

function everything() {
  allViews();
  last = last.then(catchUp);
  return last;
}

function fill(id, options, value) {
  at(id).replaceChildren(...options.map(([key, words]) => make("option", words, { value: key, selected: key === value })));
}

/* A control that stands for one choice. */
function bind(id, event, property, then) {
  at(id)[property] = chosen[id];
  at(id).addEventListener(event, () => {
    chosen[id] = typeof chosen[id] === "number" ? Number(at(id)[property]) : at(id)[property];
    then();
  });
}

function wear() {
  document.documentElement.dataset.theme = theme();
  at("theme").textContent = theme() === "dark" ? "Light" : "Dark";
  at("theme").setAttribute("aria-label", `Switch to the ${theme() === "dark" ? "light" : "dark"} theme`);
}

function enterGroup() {
  const group = data.groups[chosen.group];
  const recorded = data.metrics.filter((_, index) => group.metrics.includes(index));
  if (!recorded.includes(chosen.metric)) {
    chosen.metric = recorded.find(metric => metric === "validation/" + group.metric) || recorded[0] || "";
  }
  fill("metric", recorded.map(metric => [metric, spoken(metric)]), chosen.metric);
  const keys = groupingKeys();
  if (!keys.some(([key]) => key === chosen.by)) chosen.by = "variant";
  fill("by", keys, chosen.by);
  fillCosts();
  at("importance").hidden = !group.importance.options.length && !group.importance.note;
  at("costs").hidden = group.runs.length < 2; // one point says nothing of what is worth its cost
  const examples = group.keys.slice(0, 3).map(key => `${data.short[key]}=${told(data.runs[group.runs[0]].settings[key])}`);
  at("filter").placeholder = examples[0] || "part of a name";
  at("filter-help").textContent = `All words must hold: ${[...examples, "lr>0.003", "seed!=2", "status=finished"].join(" ")}; * matches anything, a comma means or, and a word without a sign matches part of a name. The conclusion still uses all runs.`;
}

function fillGroups() {
  fill("group", data.groups.map((group, index) => [String(index), `${index + 1}: ${group.variants.map(variant => variant.name).join(", ").slice(0, 60)}`]), String(chosen.group));
  at("group-label").hidden = data.groups.length < 2;
}

function start() {
  recall();
  wear();
  fillGroups();
  fill("axis", Object.entries(AXES), chosen.axis);
  enterGroup();
  bind("group", "change", "value", () => { chosen.hidden = []; unfolded = false; chosen.picked = null; slots.clear(); enterGroup(); showGroups(); everything(); });
  bind("metric", "change", "value", () => refresh("curves"));
  for (const id of ["axis", "outliers"]) bind(id, "change", "value", () => refresh("curves", "charts"));
  for (const id of ["logx", "alone"]) bind(id, "change", "checked", () => refresh("curves", "charts"));
  bind("logy", "change", "checked", () => refresh("curves"));
  bind("smooth", "input", "value", () => refresh("curves", "charts"));
  bind("by", "change", "value", () => refresh("curves", "charts", "costs"));
  for (const id of ["cost", "which"]) bind(id, "change", "value", () => refresh("costs"));
  startCharts();
  bind("logcost", "change", "checked", () => refresh("costs"));
  bind("whole", "change", "checked", () => refresh("diff"));
  at("step").addEventListener("change", () => { chosen.step = at("step").value; refresh("samples"); });
  let waiting;
  bind("filter", "input", "value", () => { clearTimeout(waiting); waiting = setTimeout(everything, 150); });
  at("choices").onsubmit = event => event.preventDefault();
  at("theme").onclick = () => { chosen.theme = theme() === "dark" ? "light" : "dark"; wear(); everything(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { wear(); everything(); });
  at("about").textContent = data.about;
  at("foot").textContent = `Made by seqtrain ${data.version} at ${data.made}. The file contains everything that it shows; nothing is downloaded.`;
  showGroups();
  everything();
  for (const name of Object.keys(VIEWS)) watcher.observe(at(name));
}

start();
if (data.mark) setTimeout(listen, NEWS_EVERY);
