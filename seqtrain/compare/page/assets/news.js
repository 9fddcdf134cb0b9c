// A page that `seqtrain serve` gives asks what has changed since, and takes it in where it stands.

const NEWS_EVERY = 2000; // milliseconds

async function listen() {
  // A tab that nobody looks at need not ask.
  const answer = document.hidden ? undefined : await fetch("changes?since=" + encodeURIComponent(data.mark), { cache: "no-store" }).catch(() => null);
  const lost = answer === null || (answer && !answer.ok);
  try {
    if (answer?.status === 200) await (last = last.then(async () => take(parsed(await answer.text()))).catch(error => console.error(error)));
    if (answer !== undefined) {
      at("about").textContent = data.about + (lost ? " · seqtrain serve has stopped: what you see is the last that it showed" : ` · live, as of ${data.made}`);
    }
  } finally {
    setTimeout(listen, NEWS_EVERY);
  }
}

/* Takes in what has changed; choices, focus and what was unfolded stay as they are. */
async function take(told) {
  if (Object.hasOwn(told.known, "script") && told.known.script !== data.script) {
    remember();
    location.reload(); // another version of seqtrain: its page knows other things
    return;
  }
  const blocks = await mergedBlocks(told), before = new Map(data.runs.map(run => [run.name, run]));
  const ownRun = data.runs[data.groups[chosen.group].runs[0]].name;
  Object.assign(data, told.known);
  data.groups = Array.from({ length: told.group_count }, (_, number) => told.groups[number] ?? data.groups[number]);
  data.runs = told.order.map((name, index) => ({ ...(Object.hasOwn(told.runs, name) ? told.runs[name] : before.get(name)), index }));
  for (const [key, values] of blocks) unpacked.set(key, Promise.resolve(values));
  chosen.group = Math.max(data.groups.findIndex(group => group.runs.some(index => data.runs[index].name === ownRun)), 0);
  renameVariants(before);
  await keepingPlaces(async () => {
    fillGroups();
    enterGroup();
    showGroups();
    allViews();
    await catchUp();
  });
}

/* Every block with its news, one value for each run in the new order. */
async function mergedBlocks(told) {
  const places = new Map(data.runs.map((run, place) => [run.name, place])), merged = new Map();
  for (const key of new Set([...blockNames(), ...Object.keys(told.blocks)])) {
    const known = unpacked.has(key) || at("block-" + (blockIds.get(key) ?? key)) ? await block(key) : [];
    const fresh = told.blocks[key] ?? {};
    merged.set(key, told.order.map(name => Object.hasOwn(fresh, name) ? fresh[name] : known[places.get(name)] ?? null));
  }
  return merged;
}

function blockNames() {
  const byId = new Map([...blockIds].map(([key, id]) => [id, key]));
  const ids = [...document.querySelectorAll("script[id^=block-]")].map(each => each.id.slice("block-".length));
  return [...unpacked.keys(), ...ids.map(id => byId.get(id) ?? id)];
}

/* A variant is called by what differs, which a new run may change: what was hidden or coloured follows its runs. */
function renameVariants(before) {
  const names = new Map();
  for (const run of data.runs) if (before.has(run.name)) names.set(before.get(run.name).variant, run.variant);
  chosen.hidden = chosen.hidden.map(name => names.get(name) ?? name);
  const looks = [...slots];
  slots.clear();
  for (const [name, slot] of looks) slots.set(names.get(name) ?? name, slot);
}

/* Draws anew, and gives back what drawing takes away: the focus, and what was unfolded. */
async function keepingPlaces(draw) {
  const homeOf = element => element.closest("section, form, [id]")?.id ?? "";
  const nameOf = element => element.id || element.getAttribute("aria-label") || element.textContent;
  const active = document.activeElement, wanted = active && active !== document.body && [homeOf(active), active.tagName, nameOf(active)];
  const open = new Set([...document.querySelectorAll("details[open] > summary")].map(each => homeOf(each.parentElement.parentElement)));
  const scrolled = [...document.querySelectorAll(".scroll")].map(each => [each, each.scrollTop, each.scrollLeft]), top = scrollY;
  await draw();
  for (const details of document.querySelectorAll("details")) if (open.has(homeOf(details.parentElement))) details.open = true;
  for (const [element, down, right] of scrolled) { element.scrollTop = down; element.scrollLeft = right; }
  if (Math.abs(scrollY - top) > 1) scrollTo({ top, behavior: "instant" });
  if (!wanted || document.contains(active)) return;
  const home = at(wanted[0]) ?? document;
  [...home.querySelectorAll(wanted[1])].find(each => nameOf(each) === wanted[2])?.focus({ preventScroll: true });
}
