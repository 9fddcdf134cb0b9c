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
  const parts = before === null ? [["same", after]] : wordDifferences(before, after), className = "said";
  if (!after.trim()) return make("div", "(nothing)", { className });
  if (parts === null) return make("div", [after, make("small", "not marked: too unlike, or too long")], { className });
  return make("div", parts.flatMap(([kind, words]) => {
    const word = words.trimEnd(); // the space after a word is no part of the mark
    return kind === "same" ? words : [make({ new: "ins", gone: "del" }[kind], word), words.slice(word.length)];
  }), { className });
}

/* The samples of a run as {source, reference, said, more} by a key: the source, and how often it came before. */
function sampleRows(found) {
  const rows = new Map(), seen = new Map();
  if (!found.columns) return new Map([["text", { source: "output of the run", reference: null, said: found.text, more: found.cut ? ["cut"] : [] }]]);
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
  const head = tableHead(["source", ...runs.map((run, k) => sampleHead(run, found[k]))]), body = make("tbody", keys.map(key => sampleRow(key, rows, found)));
  at("samples-table").replaceChildren(...(keys.length || runs.length ? [head, body] : []));
  at("samples-note").textContent = samplesNote(runs, samples, found, rows, keys);
}

function sampleHead(run, found) {
  const where = !found ? "no sample" + (chosen.step === "" ? "" : " of this step") : `step ${told(found.step)}`;
  const below = [`${aboutRun(run)}, ${where}`, found?.fault, found?.left_out ? `${counted(found.left_out, "more sample")} in its folder` : ""];
  return make("th", [swatch(run.variant), " " + run.name, ...below.filter(Boolean).map(words => make("small", words))], { scope: "col" });
}

function sampleRow(key, rows, found) {
  const all = rows.map(each => each.get(key)), leader = all.findIndex(Boolean), { source, said } = all[leader];
  const reference = all.map(own => own?.reference).find(isKnown) ?? null;
  const range = fanRange(all.map(own => own?.fan).filter(Boolean));
  const cells = all.map((own, k) => {
    if (!own) return [make("small", found[k] ? "not shown by this run" : "")];
    const before = own.fan || reference === null && k === leader ? null : own.reference ?? reference ?? said;
    return [own.fan && range ? fanPicture(own.fan, range) : null, marked(before, own.said), ...own.more.map(words => make("small", words))];
  });
  return tableRow([[source, reference === null ? null : make("small", "reference: " + reference)], ...cells]);
}

function samplesNote(runs, samples, found, rows, keys) {
  if (!runs.length) return "Tick runs in the table above to see their samples.";
  if (!keys.length) return "None of the ticked runs has samples; callbacks=default writes them at each validation.";
  const having = rows.filter(each => each.size), all = keys.filter(key => having.every(each => each.has(key))).length;
  const words = [];
  if (having.length > 1) words.push(`${all} of ${counted(keys.length, "source")} shown by all ${having.length} runs that have samples here.`);
  const reference = found.some(each => each?.reference !== null && each?.reference !== undefined);
  if (reference) words.push("Words are compared with the reference: underlined words are not in the reference; struck-through words are missing.");
  else if (having.length > 1) words.push("There is no reference: words are compared with the first run that shows the source; underlined words are not in that run; struck-through words are only in that run.");
  words.push(...fanNote(found));
  if (chosen.step === "" && new Set(found.filter(Boolean).map(each => each.step)).size > 1) words.push("The runs' newest steps differ.");
  const left = runs.some(run => samples[run.index].steps > samples[run.index].kept.length);
  if (left) words.push("This page contains some of the steps; the run directories contain all.");
  words.push(`At most ${data.sample.toLocaleString("en")} characters per step. A few samples show what a model's answers look like, not which model is better.`);
  return words.join(" ");
}

// Forecasts over what came, as small pictures beside samples: drawn as SVG, those of one row on one scale.

const FAN = { width: 300, height: 116, left: 40, right: 4, top: 6, bottom: 14 };
const FAN_INK = { truth: "#d55e00", forecast: "#0072b2" };

/* The lowest and the highest value of all pictures of a row: side by side they are compared by eye. */
function fanRange(fans) {
  const lines = fans.flatMap(fan => [fan.history, fan.median, fan.truth ?? [], ...fan.bands.flatMap(([, low, high]) => [low, high])]);
  const values = lines.flat().filter(isKnown);
  if (!values.length) return null;
  const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  const room = (high - low || Math.abs(high) || 1) / 20;
  return { low: low - room, high: high + room };
}

/* A line with a gap where a value is missing; a value between two gaps is a dot. */
function fanPath(values, first, place) {
  let path = "", down = false;
  for (const [k, value] of values.entries()) {
    if (value !== null) path += `${down ? "L" : "M"}${place(first + k, value)}${!down && (values[k + 1] ?? null) === null ? "h.5" : ""}`;
    down = value !== null;
  }
  return path;
}

/* The area between two ends, in parts where one of them is missing. */
function fanArea(low, high, first, place) {
  let path = "", upper = [], lower = [];
  for (let k = 0; k <= low.length; k++) {
    if (k < low.length && low[k] !== null && high[k] !== null) {
      upper.push(place(first + k, high[k]));
      lower.unshift(place(first + k, low[k]));
    } else if (upper.length) {
      path += `M${[...upper, ...lower].join("L")}Z`;
      upper = [];
      lower = [];
    }
  }
  return path;
}

function fanPicture(fan, range) {
  const before = fan.history.length, steps = before + fan.median.length;
  const x = k => FAN.left + (FAN.width - FAN.left - FAN.right) * k / Math.max(steps - 1, 1);
  const y = value => FAN.top + (FAN.height - FAN.top - FAN.bottom) * (range.high - value) / (range.high - range.low);
  const place = (k, value) => `${x(k).toFixed(1)} ${y(value).toFixed(1)}`;
  const intervals = fan.bands.map(([share]) => `${Math.round(100 * share)} %`).join(", ");
  const words = `${fan.title}: ${before} values read, ${fan.median.length} forecast${fan.truth ? ", and the true values" : ""}${intervals ? `; intervals of ${intervals}` : ""}`;
  const area = ([share, low, high]) => svg("path", { d: fanArea(low, high, before, place), fill: FAN_INK.forecast, "fill-opacity": 0.2, "data-share": share });
  return svg("svg", { class: "fan", viewBox: `0 0 ${FAN.width} ${FAN.height}`, role: "img", "aria-label": words }, [
    svg("title", {}, words),
    ...[range.low, range.high].map(value => svg("text", { x: FAN.left - 4, y: y(value) + 4, "text-anchor": "end" }, told(value, 3))),
    ...fan.bands.map(area),
    svg("path", { class: "edge", d: `M${x(before - 0.5)} ${FAN.top}V${FAN.height - FAN.bottom}` }),
    svg("text", { x: x(before - 0.5), y: FAN.height - 2, "text-anchor": "middle" }, `${fan.median.length} ahead`),
    svg("path", { class: "line history", d: fanPath(fan.history, 0, place) }),
    svg("path", { class: "line", d: fanPath(fan.median, before, place), stroke: FAN_INK.forecast }),
    fan.truth ? svg("path", { class: "line truth", d: fanPath(fan.truth, before, place), stroke: FAN_INK.truth }) : null,
  ]);
}

/* What is said of the pictures below a table of samples; nothing where there are none. */
function fanNote(found) {
  const shown = found.filter(Boolean), words = [];
  if (shown.some(each => each.fans?.some(Boolean))) {
    words.push("Plots: grey, the values before; blue, the forecast with its intervals (narrower ones are darker); orange and dashed, the true values. Plots in one row share a scale.");
  }
  if (shown.some(each => each.without_fans)) words.push("Some plots are left out to limit the size of this page; they are in the run directories.");
  if (shown.some(each => each.fans?.some(fan => fan === null))) words.push("Very long forecasts have no plot here.");
  return words;
}

// Which label is taken for which, and where a model looks, of the ticked runs side by side.

async function showPictures() {
  const confusion = await block("confusion"), attention = await block("attention"), runs = picks();
  const counts = runs.filter(run => confusion[run.index]), maps = runs.filter(run => attention[run.index]);
  at("confusion-cards").replaceChildren(...counts.map(run => confusionCard(run, confusion[run.index])));
  at("attention-cards").replaceChildren(...maps.map(run => attentionCard(run, attention[run.index])));
  at("pictures-note").textContent = picturesNote(runs, counts, maps);
}

function picturesNote(runs, counts, maps) {
  if (!runs.length) return "Tick runs in the table above to see their plots.";
  const words = [];
  if (counts.length) words.push("Rows are true labels and columns are predicted labels, at the newest validation (not always the best): the share of the row, and the number of examples.");
  else words.push("No ticked run has confusion counts; tasks that classify (task=sentiment) record them at each validation with callbacks=default.");
  if (counts.length && counts.length < runs.length) words.push(`${runs.length - counts.length} of ${counted(runs.length, "ticked run")} have no confusion counts.`);
  if (maps.length) words.push("Attention: the first example of validation, with the weights of the end of training.");
  else words.push("No ticked run has a plot of its attention (models with attention draw one at the end of training, with callbacks=default).");
  words.push("seqtrain predict RUN 'a text' --attention look.png draws it for any text.");
  return words.join(" ");
}

const pictureNote = words => make("p", words, { className: "note" });
const pictureCard = (run, words, ...more) => make("article", [make("h3", [swatch(run.variant), " " + run.name]), pictureNote(words), ...more]);

function confusionCard(run, found) {
  if (found.fault) return pictureCard(run, found.fault);
  const words = `${aboutRun(run)}, step ${told(found.step)}, ${counted(found.examples, "example")}`;
  if (!found.many) return pictureCard(run, words, confusionTable(found));
  return pictureCard(run, words, pictureNote(`${found.many} labels: the most frequent confusions`), confusedTable(found.confused));
}

const percent = (count, all) => all ? `${(100 * count / all).toFixed(1)} %` : "none";

function confusionTable(found) {
  const rows = found.counts.map((row, true_) => {
    const all = row.reduce((sum, count) => sum + count, 0);
    return tableRow([found.labels[true_], ...row.map((count, taken) => {
      const cell = make("td", [percent(count, all), make("small", told(count))], { className: taken === true_ ? "right" : "" });
      cell.style.setProperty("--share", all ? count / all : 0);
      return cell;
    })]);
  });
  return make("table", [tableHead([make("th", "true \\ predicted"), ...found.labels]), make("tbody", rows)], { className: "confusion" });
}

function confusedTable(pairs) {
  const row = ([count, label, taken, all]) => make("tr", cellsOf([label, taken, told(count), percent(count, all)], "td"));
  return make("table", [tableHead(["true", "predicted", "examples", "share of the label"]), make("tbody", pairs.map(row))]);
}

function attentionCard(run, found) {
  if (found.fault) return pictureCard(run, found.fault);
  return pictureCard(run, aboutRun(run), make("img", null, { src: "data:image/png;base64," + found.png, alt: `attention of ${run.name}: rows look at columns` }));
}
