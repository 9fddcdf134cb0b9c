// Values so far from the rest that nothing else would be seen: left outside the picture, and counted.

const QUANTILES = 50; // of each line, so that a line of many points weighs no more than one of few
const HIDING = 10; // times the range of the bulk: from there on the bulk is a tenth of the picture or less
const AROUND = 2; // bulks that are shown above it and below it
const MOST_NAMED = 3;

/* The range of y that shows the bulk, and what lies outside; null where all is shown. */
function clippedRange(lines, log) {
  if (chosen.outliers === "shown" || !lines.length) return null;
  const scale = log ? Math.log10 : value => value, pooled = [];
  for (const line of lines) {
    const own = line.y.map(scale).sort((a, b) => a - b);
    for (let k = 0; k < QUANTILES; k++) pooled.push(own[Math.round(k / (QUANTILES - 1) * (own.length - 1))]);
  }
  pooled.sort((a, b) => a - b);
  const most = pooled.at(-1), least = pooled[0];
  const low = pooled[Math.floor(pooled.length / 10)], high = pooled[Math.ceil(pooled.length * 9 / 10) - 1], bulk = high - low;
  // A flat line with a spike is seen as that.
  if (!bulk || (chosen.outliers === "auto" && most - least <= HIDING * bulk)) return null;
  const range = [Math.max(least, low - AROUND * bulk) - bulk / 10, Math.min(most, high + AROUND * bulk) + bulk / 10];
  const outside = y => scale(y) < range[0] || scale(y) > range[1];
  const counts = lines.map(line => line.y.filter(outside).length);
  if (!counts.some(Boolean)) return null;
  const whole = lines.filter((line, k) => counts[k] === line.y.length).map(line => line.run.name);
  const ends = lines.flatMap(line => line.y.filter(outside));
  return {
    range, outside, whole: [...new Set(whole)], points: counts.reduce((sum, count) => sum + count, 0), runs: new Set(lines.filter((_, k) => counts[k]).map(line => line.run)).size,
    all: lines.reduce((sum, line) => sum + line.y.length, 0), low: ends.reduce((a, b) => Math.min(a, b)), high: ends.reduce((a, b) => Math.max(a, b)),
  };
}

function outlierNote(clipped, half) {
  if (!clipped) return "";
  const named = clipped.whole.slice(0, MOST_NAMED).join(", ") + (clipped.whole.length > MOST_NAMED ? ` and ${clipped.whole.length - MOST_NAMED} more` : "");
  const ends = [...new Set([told(clipped.low), told(clipped.high)])].join(" to ");
  const whole = clipped.whole.length ? ` Not seen at all: ${named}.` : "";
  return `Clipped: ${told(clipped.points)} of ${told(clipped.all)} drawn points, of ${counted(clipped.runs, "run")}, lie outside the picture (${ends})${half ? ", and count in no smoothed line" : ""}.${whole}`;
}
