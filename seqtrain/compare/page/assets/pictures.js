// Which label is taken for which, and where a model looks, of the ticked runs side by side.

async function showPictures() {
  const confusion = await block("confusion"), attention = await block("attention"), runs = picks();
  const counts = runs.filter(run => confusion[run.index]), maps = runs.filter(run => attention[run.index]);
  at("confusion-cards").replaceChildren(...counts.map(run => confusionCard(run, confusion[run.index])));
  at("attention-cards").replaceChildren(...maps.map(run => attentionCard(run, attention[run.index])));
  at("pictures-note").textContent = picturesNote(runs, counts, maps);
}

function picturesNote(runs, counts, maps) {
  if (!runs.length) return "Tick runs in the table above to see theirs.";
  const words = [];
  if (counts.length) words.push("Rows are true labels, columns what they were taken for, at the newest validation (which need not be the best): of each row the share, and the number of examples.");
  else words.push("No ticked run keeps confusion counts; tasks that name the label of a text (task=sentiment) keep them at each validation with callbacks=default.");
  if (counts.length && counts.length < runs.length) words.push(`${runs.length - counts.length} of ${counted(runs.length, "ticked run")} kept no confusion counts.`);
  if (maps.length) words.push("Attention: the first example of validation, with the weights of the end of training.");
  else words.push("No ticked run drew its attention (models that attend do at the end of training, with callbacks=default).");
  words.push("seqtrain predict RUN 'a text' --attention look.png draws that of any text.");
  return words.join(" ");
}

function pictureCard(run, words) {
  const made = make("article"), title = make("h3", " " + run.name);
  title.prepend(swatch(run.variant));
  made.append(title, make("p", words, { className: "note" }));
  return made;
}

function confusionCard(run, found) {
  if (found.fault) return pictureCard(run, found.fault);
  const made = pictureCard(run, `${aboutRun(run)}, step ${told(found.step)}, ${counted(found.examples, "example")}`);
  if (found.many) {
    made.append(make("p", `${found.many} labels: those that are taken for others most often`, { className: "note" }));
    made.append(confusedTable(found.confused));
  } else made.append(confusionTable(found));
  return made;
}

const percent = (count, all) => all ? `${(100 * count / all).toFixed(1)} %` : "none";

function confusionTable(found) {
  const table = make("table", null, { className: "confusion" }), top = make("thead"), body = make("tbody"), head = make("tr");
  head.append(make("th", "true \\ taken for"), ...found.labels.map(label => make("th", label, { scope: "col" })));
  top.append(head);
  for (const [true_, row] of found.counts.entries()) {
    const line = make("tr"), all = row.reduce((sum, count) => sum + count, 0);
    line.append(make("th", found.labels[true_], { scope: "row" }));
    for (const [taken, count] of row.entries()) {
      const cell = make("td", percent(count, all), { className: taken === true_ ? "right" : "" });
      cell.style.setProperty("--share", all ? count / all : 0);
      cell.append(make("small", told(count)));
      line.append(cell);
    }
    body.append(line);
  }
  table.append(top, body);
  return table;
}

function confusedTable(pairs) {
  const table = make("table"), top = make("thead"), body = make("tbody"), head = make("tr");
  head.append(...["true", "taken for", "examples", "of its label"].map(words => make("th", words, { scope: "col" })));
  top.append(head);
  for (const [count, label, taken, all] of pairs) {
    const line = make("tr");
    line.append(...[label, taken, told(count), percent(count, all)].map(words => make("td", words)));
    body.append(line);
  }
  table.append(top, body);
  return table;
}

function attentionCard(run, found) {
  if (found.fault) return pictureCard(run, found.fault);
  const made = pictureCard(run, aboutRun(run));
  made.append(make("img", null, { src: "data:image/png;base64," + found.png, alt: `attention of ${run.name}: rows look at columns` }));
  return made;
}
