// More charts: a grid that the reader fills, each chart against the same x as the large one.

/* What the grid holds before the reader has chosen: is it learning, is it stable, is it fast, what does it take. */
function startingCharts(recorded) {
  const group = data.groups[chosen.group];
  const losses = ["validation/loss", "train/loss"].filter(metric => metric !== "validation/" + group.metric);
  const loss = losses.find(metric => recorded.includes(metric));
  const others = ["gradient_norm", "lr", "tokens_per_second"].filter(metric => recorded.includes(metric));
  return [...(loss ? [loss] : []), ...others, ...recorded.filter(metric => metric.startsWith("system/"))];
}

function chartsShown() {
  const recorded = recordedMetrics();
  return (chosen.charts || startingCharts(recorded)).filter(metric => recorded.includes(metric));
}

function showCharts(metrics) {
  chosen.charts = metrics;
  return refresh("charts");
}

async function drawCharts() {
  const metrics = chartsShown(), grid = at("charts-grid");
  for (const old of [...grid.children]) {
    if (metrics.includes(old.dataset.metric)) continue;
    readings.delete(old.querySelector(".plot").id);
    Plotly.purge(old.querySelector(".plot"));
    old.remove();
  }
  const figures = metrics.map(metric => [...grid.children].find(each => each.dataset.metric === metric) || newChart(metric));
  // A chart that is put in anew loses the keyboard's place.
  if (figures.some((figure, k) => grid.children[k] !== figure)) grid.append(...figures);
  fillAdding(metrics);
  at("charts-empty").hidden = metrics.length > 0;
  for (const [k, metric] of metrics.entries()) {
    const place = figures[k].querySelector(".plot").id, log = chosen.logs.includes(metric);
    figures[k].querySelector("button").setAttribute("aria-pressed", log);
    const drawn = await drawMetric(place, metric, { log, title: "", names: false });
    figures[k].querySelector(".note").textContent = drawn.words;
  }
}

/* The large chart is not offered again, nor what the grid has. */
function fillAdding(metrics) {
  const left = recordedMetrics().filter(metric => !metrics.includes(metric));
  fill("adding", [["", left.length ? "choose a metric" : "all are shown"], ...left.map(metric => [metric, spoken(metric)])], "");
  at("adding").disabled = !left.length;
}

function newChart(metric) {
  const figure = make("figure"), head = make("div", null, { className: "head" }), words = spoken(metric);
  figure.dataset.metric = metric;
  const log = make("button", "log y", { type: "button" }), away = make("button", "×", { type: "button", title: "Remove this chart" });
  log.setAttribute("aria-label", `log y of ${words}`);
  away.setAttribute("aria-label", `Remove the chart of ${words}`);
  log.onclick = () => {
    chosen.logs = chosen.logs.includes(metric) ? chosen.logs.filter(each => each !== metric) : [...chosen.logs, metric];
    refresh("charts");
  };
  away.onclick = () => {
    at("adding").focus();
    showCharts(chartsShown().filter(each => each !== metric));
  };
  head.append(make("h3", words), log, away);
  const place = make("div", null, { className: "plot small", id: "chart-" + data.metrics.indexOf(metric), role: "group" });
  figure.append(head, place, make("p", "", { className: "note" }));
  return figure;
}

function startCharts() {
  at("adding").onchange = () => at("adding").value && showCharts([...chartsShown(), at("adding").value]);
  at("usual").onclick = () => { chosen.charts = null; chosen.logs = []; refresh("charts"); };
}
