// A page that `seqtrain serve` gives asks for newer data, and shows them where it stands.

const NEWS_EVERY = 2000; // milliseconds

async function listen() {
  // A tab that nobody looks at need not ask.
  const answer = document.hidden ? undefined : await fetch("data", { headers: { "If-None-Match": data.mark } }).catch(() => null);
  const lost = answer === null || (answer && !answer.ok && answer.status !== 304);
  try {
    if (answer?.status === 200) await (last = last.then(async () => take(parsed(await answer.text()))).catch(error => console.error(error)));
    if (answer !== undefined) {
      at("about").textContent = data.about + (lost ? " · seqtrain serve has stopped: what you see is the last that it showed" : ` · live, as of ${data.made}`);
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
  const before = new Map(data.runs.map(run => [run.name, run])), ownRun = data.runs[data.groups[chosen.group].runs[0]].name;
  Object.assign(data, known);
  unpacked.clear();
  for (const [id, text] of Object.entries(blocks)) (at(id) ?? document.body.appendChild(make("script", null, { id, type: "text/plain" }))).textContent = text;
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
