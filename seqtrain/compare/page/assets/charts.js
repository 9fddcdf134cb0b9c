// What every plot shares.

// The buttons by name: those that another release of Plotly adds, such as one that uploads the chart, do not come in.
const BUTTONS = [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]];
const CONFIG = { responsive: true, displaylogo: false, scrollZoom: false, modeBarButtons: BUTTONS, showSendToCloud: false, plotlyServerURL: "" };

/* The same as long as a picture shows the same: then Plotly keeps what the reader zoomed to. */
const zoomKept = (...shown) => JSON.stringify([chosen.group, ...shown]);

function layout(more) {
  const axis = {
    gridcolor: ink("grid"), linecolor: ink("line"), zeroline: false, automargin: true, exponentformat: "SI",
    title: { standoff: 8 }, ticks: "outside", tickcolor: ink("line"), minexponent: 4,
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { family: "system-ui, sans-serif", size: 13, color: ink("ink") },
    margin: { l: 56, r: 12, t: 20, b: 48 },
    hoverlabel: { bgcolor: ink("raised"), bordercolor: ink("line"), font: { color: ink("ink") }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink("rest"), activecolor: ink("ink") },
    ...more,
    xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
  };
}

/* Plotly reads a little HTML in texts; what strangers named must not be read so. */
const plain = text => String(text).replace(/[&<>]/g, sign => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

function veiled(color, share) {
  const parts = [1, 3, 5].map(start => parseInt(color.slice(start, start + 2), 16));
  return `rgba(${parts.join(",")},${share})`;
}

/* Lines one after another in one trace, with gaps between them: a trace each would be slow. */
function joined(lines) {
  const x = [], y = [], text = [];
  for (const line of lines) {
    for (let k = 0; k < line.x.length; k++) { x.push(line.x[k]); y.push(line.y[k]); text.push(line.name); }
    x.push(null); y.push(null); text.push("");
  }
  return { x, y, text, mode: "lines", connectgaps: false };
}
