// What the ticked runs wrote at a validation: a row for each source, a column for each run, differences of words marked.

const MOST_CELLS = 250_000; // of a table of words against words
const LEAST_SHARED = 0.3; // of the words: below this every word would be marked, which says nothing

/* The words of two texts as [kind, words]: "same", "new" (of the second alone), "gone" (of the first alone). null where
   the texts are too long, or too unlike, to be marked. By their longest common subsequence. */
function wordDifferences(before, after) {
  const one = before.match(/\S+/g) ?? [], other = after.match(/\S+/g) ?? [], spaced = after.match(/\S+\s*/g) ?? [];
  if (one.length * other.length > MOST_CELLS) return null;
  const longest = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let k = other.length - 1; k >= 0; k--) {
      longest[i][k] = one[i] === other[k] ? longest[i + 1][k + 1] + 1 : Math.max(longest[i + 1][k], longest[i][k + 1]);
    }
  }
  const most = Math.max(one.length, other.length);
  if (most > 3 && longest[0][0] < LEAST_SHARED * most) return null;
  const parts = [], add = (kind, word) => parts.at(-1)?.[0] === kind ? parts.at(-1)[1].push(word) : parts.push([kind, [word]]);
  let i = 0, k = 0;
  while (i < one.length || k < other.length) {
    if (i < one.length && k < other.length && one[i] === other[k]) { add("same", spaced[k++]); i++; }
    else if (k === other.length || (i < one.length && longest[i + 1][k] >= longest[i][k + 1])) add("gone", one[i++] + " ");
    else add("new", spaced[k++]);
  }
  return parts.map(([kind, words]) => [kind, words.join("")]);
}

/* A text with its differences from another one: <ins> what it has alone, <del> what it lacks. */
function marked(before, after) {
  const made = make("div", null, { className: "said" }), parts = before === null ? null : wordDifferences(before, after);
  if (!after.trim()) made.append("(nothing)");
  else if (parts === null) made.append(after);
  else {
    for (const [kind, words] of parts) {
      // The space after a word is no part of the mark.
      made.append(kind === "same" ? words : make({ new: "ins", gone: "del" }[kind], words.trimEnd()), kind === "same" ? "" : words.slice(words.trimEnd().length));
    }
  }
  if (parts === null && before !== null && after.trim()) made.append(make("small", "not marked: too unlike, or too long"));
  return made;
}

/* The samples of a run as {source, reference, said, more} by a key: the source, and how often it came before. */
function sampleRows(found) {
  const rows = new Map(), seen = new Map();
  if (!found.columns) return new Map([["text", { source: "what the run wrote", reference: null, said: found.text, more: found.cut ? ["cut"] : [] }]]);
  for (const [place, row] of found.rows.entries()) {
    const short = value => String(value).length >= found.longest ? value + "…" : String(value);
    const source = found.given === null ? `sample ${place + 1}` : short(row[found.given]);
    // Tokenizers may part spaces in other ways.
    const same = source.replace(/\s+/g, " ").trim(), times = (seen.get(same) ?? 0) + 1;
    seen.set(same, times);
    const reference = found.reference === null ? null : short(row[found.reference]);
    const rest = found.columns.map((_, k) => k).filter(k => k !== found.given && k !== found.reference);
    const more = rest.slice(1).map(k => `${found.columns[k].replaceAll("_", " ")}: ${told(row[k], 3)}`);
    rows.set(`${same} ${times}`, { source: times > 1 ? `${source} (${times})` : source, reference, said: rest.length ? short(row[rest[0]]) : "", more, fan: found.fans?.[place] ?? null });
  }
  return rows;
}

/* Of each ticked run what it wrote at the chosen step; undefined where it kept nothing of it. */
function samplesAt(samples, runs) {
  return runs.map(run => {
    const kept = samples[run.index].kept;
    return chosen.step === "" ? kept[0] : kept.find(each => String(each.step) === chosen.step);
  });
}

async function showSamples() {
  const samples = await block("samples"), runs = picks();
  const steps = [...new Set(runs.flatMap(run => samples[run.index].kept.map(each => each.step)))].sort((a, b) => b - a);
  if (!steps.map(String).includes(chosen.step)) chosen.step = "";
  fill("step", [["", "the newest step of each run"], ...steps.map(step => [String(step), `step ${told(step)}`])], chosen.step);
  const found = samplesAt(samples, runs), rows = found.map(each => each && !each.fault ? sampleRows(each) : new Map());
  const keys = [...new Set(rows.flatMap(each => [...each.keys()]))];
  const top = make("thead"), head = make("tr"), body = make("tbody");
  head.append(make("th", "source", { scope: "col" }), ...runs.map((run, k) => sampleHead(run, found[k])));
  top.append(head);
  for (const key of keys) body.append(sampleRow(key, rows, found));
  at("samples-table").replaceChildren(...(keys.length || runs.length ? [top, body] : []));
  at("samples-note").textContent = samplesNote(runs, samples, found, rows, keys);
}

function sampleHead(run, found) {
  const made = make("th", " " + run.name, { scope: "col" });
  made.prepend(swatch(run.variant));
  const where = !found ? "no sample" + (chosen.step === "" ? "" : " of this step") : `step ${told(found.step)}`;
  made.append(make("small", `${aboutRun(run)}, ${where}`));
  if (found?.fault) made.append(make("small", found.fault));
  if (found?.left_out) made.append(make("small", `${counted(found.left_out, "more sample")} in its folder`));
  return made;
}

function sampleRow(key, rows, found) {
  const row = make("tr"), first = rows.find(each => each.has(key)).get(key), title = make("th", first.source, { scope: "row" });
  const references = rows.map(each => each.get(key)?.reference ?? null), reference = references.find(each => each !== null) ?? null;
  if (reference !== null) title.append(make("small", "reference: " + reference));
  row.append(title);
  const base = reference ?? rows.find(each => each.has(key)).get(key).said, leader = rows.findIndex(each => each.has(key));
  const range = fanRange(rows.map(each => each.get(key)?.fan).filter(Boolean));
  for (const [k, each] of rows.entries()) {
    const cell = make("td"), own = each.get(key);
    if (!own) cell.append(make("small", found[k] ? "not shown by this run" : ""));
    else {
      if (own.fan && range) cell.append(fanPicture(own.fan, range));
      cell.append(marked(own.fan || reference === null && k === leader ? null : own.reference ?? base, own.said));
      for (const words of own.more) cell.append(make("small", words));
    }
    row.append(cell);
  }
  return row;
}

function samplesNote(runs, samples, found, rows, keys) {
  if (!runs.length) return "Tick runs in the table above to see what they wrote.";
  if (!keys.length) return "None of the ticked runs kept samples; callbacks=default writes them at each validation.";
  const having = rows.filter(each => each.size), all = keys.filter(key => having.every(each => each.has(key))).length;
  const words = [];
  if (having.length > 1) words.push(`${all} of ${counted(keys.length, "source")} shown by all ${having.length} runs that have samples here.`);
  const reference = found.some(each => each?.reference !== null && each?.reference !== undefined);
  if (reference) words.push("Words are marked against the reference: underlined, what the reference has not; struck through, what is missing.");
  else if (having.length > 1) words.push("There is no reference: words are marked against the first run that shows the source; underlined, what it has not; struck through, what it has alone.");
  words.push(...fanNote(found));
  if (chosen.step === "" && new Set(found.filter(Boolean).map(each => each.step)).size > 1) words.push("The runs' newest steps differ.");
  const left = runs.some(run => samples[run.index].steps > samples[run.index].kept.length);
  if (left) words.push("Some of the steps are in this page; all are in the runs' folders.");
  words.push(`At most ${data.sample.toLocaleString("en")} characters of a step. A few samples show what a model's answers are like, not which model is better.`);
  return words.join(" ");
}
