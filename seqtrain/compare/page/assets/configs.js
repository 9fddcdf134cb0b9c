// One view of the ticked runs' configurations: lines that differ, each with the runs that have it, and what stands around.

const CONTEXT = 1; // lines before and after one that differs
const MOST_NAMES = 3; // of runs beside a line

/* The lines of a configuration by the keys that lead to them: a line of YAML belongs to the lines above it that are
   indented less. */
function configLines(text) {
  const above = [], lines = new Map();
  for (const line of text.split("\n").filter(each => each.trim())) {
    const indent = line.search(/\S/), key = line.trim().startsWith("- ") ? "-" : line.trim().split(":")[0];
    // An item stands as far left as the key that it belongs to.
    while (above.length && (above.at(-1).indent > indent || (above.at(-1).indent === indent && !(key === "-" && !above.at(-1).item)))) above.pop();
    const parent = above.at(-1)?.path ?? "";
    let path = `${parent}\n${key}`, count = 1;
    while (lines.has(path)) path = `${parent}\n${key} ${++count}`; // items of a list, lines of a text
    lines.set(path, { line, parent });
    above.push({ indent, path, item: key === "-" });
  }
  return lines;
}

/* The paths of all configurations in one order: what only some have stands behind what stands before it there. */
function mergedPaths(all) {
  const merged = [], places = new Set();
  for (const lines of all) {
    let at = 0;
    for (const path of lines.keys()) {
      if (places.has(path)) at = merged.indexOf(path) + 1;
      else { merged.splice(at++, 0, path); places.add(path); }
    }
  }
  return merged;
}

/* What stands in one place: each text and the runs that have it; `same` where all have one. */
function configPlaces(runs, texts) {
  const all = texts.map(configLines);
  return mergedPaths(all).map(path => {
    const versions = new Map(), lacking = [];
    for (const [k, lines] of all.entries()) {
      const line = lines.get(path)?.line;
      if (line === undefined) lacking.push(runs[k]);
      else versions.set(line, [...(versions.get(line) ?? []), runs[k]]);
    }
    const parent = all.find(lines => lines.has(path)).get(path).parent;
    return { path, parent, versions, lacking, same: versions.size === 1 && !lacking.length };
  });
}

/* The places that are shown: those that differ, the keys that lead to them, and what stands around. */
function shownPlaces(places) {
  const shown = new Set(), byPath = new Map(places.map((place, k) => [place.path, k]));
  for (const [k, place] of places.entries()) {
    if (place.same) continue;
    for (let near = Math.max(k - CONTEXT, 0); near <= Math.min(k + CONTEXT, places.length - 1); near++) shown.add(near);
    for (let path = place.parent; byPath.has(path); path = places[byPath.get(path)].parent) shown.add(byPath.get(path));
  }
  return shown;
}

function configRow(sign, line, who, kind) {
  const made = make("tr", null, { className: kind }), cell = make("td", null, { className: "who" });
  made.append(make("td", sign), make("td", line), cell);
  for (const run of who.slice(0, MOST_NAMES)) cell.append(swatch(run.variant), ` ${run.name} `);
  if (who.length > MOST_NAMES) cell.append(`and ${who.length - MOST_NAMES} more`);
  cell.title = who.map(run => run.name).join("\n");
  return made;
}

async function showDiff() {
  const configs = await block("configs"), runs = picks(), places = configPlaces(runs, runs.map(run => configs[run.index]));
  const differing = places.filter(place => !place.same).length;
  const whole = chosen.whole || runs.length < 2, shown = shownPlaces(places), body = make("tbody");
  let hidden = 0;
  const gap = () => {
    if (hidden) body.append(configRow("", `… ${counted(hidden, "equal line")}`, [], "gap"));
    hidden = 0;
  };
  for (const [k, place] of places.entries()) {
    if (!whole && !shown.has(k)) { hidden++; continue; }
    gap();
    if (place.same) { body.append(configRow(" ", [...place.versions.keys()][0], [], "")); continue; }
    let sign = "-", kind = "differs first"; // - what the first ticked run has, + what others have instead, as in diff
    for (const [line, who] of place.versions) {
      if (!who.includes(runs[0])) sign = "+";
      body.append(configRow(sign, line, who, kind));
      [sign, kind] = ["+", "differs"];
    }
    if (place.lacking.length) body.append(configRow("", "    not in", place.lacking, "differs"));
  }
  gap();
  at("diff-table").replaceChildren(...(differing || whole ? [body] : []));
  at("diff-note").textContent = diffNote(runs, differing, places.length);
}

function diffNote(runs, differing, lines) {
  if (!runs.length) return "Tick runs in the table above to see how they were configured.";
  if (runs.length === 1) return `The whole configuration of ${runs[0].name}; tick another run to see what differs.`;
  if (!differing) return `The configurations of the ${runs.length} ticked runs are equal in all of ${lines} lines.`;
  return `${differing} of ${lines} lines differ among ${runs.length} ticked runs. - has the first one ticked (${runs[0].name}), + has another instead; beside each line the runs that have it.`;
}
