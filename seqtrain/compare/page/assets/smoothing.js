// Smoothing: what is drawn is a mean of what is near, and says so.

/* The stretch of x over which a point's weight halves; 0 where nothing is smoothed. It is a share of the longest run
   that is shown and so the same in all charts, for runs that record often and for those that record seldom. */
async function halfLife(runs) {
  if (!chosen.smooth) return 0;
  const clock = await block("clock");
  const lengths = runs.map(run => clockOf(clock, run, chosen.axis).at(-1) || 0);
  return chosen.smooth / 100 * Math.max(0, ...lengths);
}

/* Sums of weights and of weighted values from one end of a line, both fading with the distance in x. */
function fadingSums(line, half, order) {
  const sums = [], weights = [];
  let sum = 0, weight = 0, before = line.x[order[0]];
  for (const k of order) {
    const fade = 2 ** (-Math.abs(line.x[k] - before) / half);
    sum = sum * fade + line.weights[k] * line.y[k];
    weight = weight * fade + line.weights[k];
    before = line.x[k];
    sums[k] = sum;
    weights[k] = weight;
  }
  return { sums, weights };
}

/* Each point as the mean of those around it, with weights that fade exponentially to either side: looking back alone,
   a line that falls would lie above itself, and one of many points (training) above one of few (validation). The
   weights of the points that there are make up the whole, so the ends are drawn neither to zero nor to the first
   point; a thinned point weighs as many records as it stands for. What is left outside the picture counts nowhere. */
function smoothed(line, half, clipped) {
  if (!half) return line;
  const inside = line.y.map((_, k) => k).filter(k => !clipped || !clipped.outside(line.y[k]));
  const kept = {
    ...line, x: inside.map(k => line.x[k]), y: inside.map(k => line.y[k]), weights: inside.map(k => line.weights[k]),
  };
  const order = inside.map((_, k) => k);
  const back = fadingSums(kept, half, order), on = fadingSums(kept, half, order.toReversed());
  const value = k => {
    const own = kept.weights[k];
    return (back.sums[k] + on.sums[k] - own * kept.y[k]) / (back.weights[k] + on.weights[k] - own);
  };
  return { ...kept, y: order.map(value) };
}

const smoothedAll = (lines, half, clipped) => lines.map(line => smoothed(line, half, clipped)).filter(line => line.x.length);

function smoothingNote(half) {
  if (!half) return "";
  return ` Smoothed: a point is the mean of those around it, whose weights halve every ${told(half, 2)} of x (${AXES[chosen.axis]}) to either side; peaks are flatter than they were and begin earlier. The raw lines are faint, and grey lines are raw. The conclusion and all tables are of raw values.`;
}

function sayHalfLife(half) {
  at("smooth-value").textContent = half ? `halves every ${told(half, 2)}` : "off";
  at("smooth").setAttribute("aria-valuetext", at("smooth-value").textContent);
}
