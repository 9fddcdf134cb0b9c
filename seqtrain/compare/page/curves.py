"""Learning curves: thinned plain numbers for the page, and a plotly figure with all points for notebooks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from seqtrain.compare.entries import Axis, number
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import Conclusion
from seqtrain.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

AXES: dict[Axis, str] = {
    "steps": "optimiser steps",
    "tokens": "training tokens",
    "seconds": "training time (s)",
    "flops": "training FLOPs",
}
PALETTES = {
    "light": ["#0072b2", "#d55e00", "#009e73", "#aa4a8a", "#56b4e9", "#b8860b"],
    "dark": ["#56b4e9", "#ff8c42", "#2cc995", "#e08fc0", "#f0e442", "#c3c9d4"],
}
DASHES = ["solid", "dash", "dot", "dashdot"]
SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star"]
WORDS = {
    "tokens_per_second": "tokens per second",
    "lr": "learning rate",
    "gradient_norm": "gradient norm",
    "cpu_percent": "CPU (%; 100: one core is busy)",
    "memory_mb": "memory (MB)",
    "gpu_percent": "GPU (%)",
    "gpu_memory_mb": "GPU memory (MB)",
}

# Constants that are passed to the page.
PLAIN = {"axes": AXES, "palettes": PALETTES, "dashes": DASHES, "symbols": SYMBOLS, "words": WORDS}

MOST_POINTS = 200  # points of a curve
TICKS = 20_000  # resolution of a run's clock: finer than any screen
OTHERS = ("lr", "gradient_norm", "tokens_per_second")  # drawn in addition to metrics of SPLITS
SPLITS = ("train/", "validation/", "system/")
HEAVIEST = 35  # largest weight of a point: each weight is one character in base 36
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

DRAWN = ("finished", "running")  # statuses of the runs that a drawn mean includes

Trace = dict[str, Any]


def thinned(values: Sequence[float]) -> list[int]:
    """Return the indices of MOST_POINTS values at most to draw, in order: the ends, and the extremes of each stretch.

    The stretches have equal lengths and cover all values, so the overall extremes are always included.
    """
    if len(values) <= MOST_POINTS:
        return list(range(len(values)))
    kept = {0, len(values) - 1}
    for start, end in pairwise(_edges(len(values))):
        kept.add(min(range(start, end), key=values.__getitem__))
        kept.add(max(range(start, end), key=values.__getitem__))
    return sorted(kept)


def _edges(count: int) -> list[int]:
    """Return the start of each stretch of `count` values, and the end of the last one."""
    num_stretches = MOST_POINTS // 2 - 1  # two values for each, and two for the ends
    inner = count - 2
    return [1 + stretch * inner // num_stretches for stretch in range(num_stretches + 1)]


def short(value: float) -> float:
    """Round the number to 5 significant digits."""
    return float(f"{value:.5g}")


@dataclass(frozen=True)
class Curves:
    """The curves of one run: the clock of all needed records, and each metric at some of these.

    Integers are stored as differences between neighbours, which compress well.
    """

    steps: list[int]
    tokens: list[int]
    seconds: list[int]  # in units of `tick`
    tick: float  # seconds
    metrics: dict[str, tuple[list[int], list[float]]]  # by name: indices into the clock, and values
    weights: dict[str, str] = field(default_factory=dict)  # by name, for thinned metrics, from `weights`

    def packed(self, name: str) -> tuple[Any, ...] | None:
        """Return the page's data of a metric: places, values, and weights if it was thinned; None if not recorded."""
        if name not in self.metrics:
            return None
        weights = self.weights.get(name)
        return self.metrics[name] if weights is None else (*self.metrics[name], weights)


def curves(records: Iterable[dict[str, Any]]) -> Curves:
    """Return the curves of the records of metrics.jsonl; values that are not finite are left out."""
    rows = [record for record in records if "step" in record]
    rows_kept, values_kept, weights = _thinned_metrics(rows)
    # Metrics are thinned separately but share the clock: it has each record that any metric needs, once.
    needed = sorted(set().union(*rows_kept.values()))
    place = {row: index for index, row in enumerate(needed)}
    steps, tokens, seconds = [], [], []
    for row in needed:
        steps.append(int(number(rows[row].get("step")) or 0))
        tokens.append(int(number(rows[row].get("tokens")) or 0))
        seconds.append(number(rows[row].get("seconds")) or 0.0)
    tick = max(seconds, default=0.0) / TICKS or 1.0
    metrics = {}
    for name, kept in rows_kept.items():
        metrics[name] = differences([place[row] for row in kept]), list(map(short, values_kept[name]))
    ticks = [round(each / tick) for each in seconds]
    return Curves(differences(steps), differences(tokens), differences(ticks), tick, metrics, weights)


def _thinned_metrics(
    rows: Sequence[dict[str, Any]],
) -> tuple[dict[str, list[int]], dict[str, list[float]], dict[str, str]]:
    """Return, for each metric that is drawn, the kept rows, its values there, and its weights if it was thinned."""
    found: dict[str, list[int]] = defaultdict(list)
    values: dict[str, list[float]] = defaultdict(list)
    for row, record in enumerate(rows):
        for name, value in record.items():
            known = number(value)
            if known is not None and (name in OTHERS or name.startswith(SPLITS)):
                found[name].append(row)
                values[name].append(known)
    weighed = {}
    for name, every in values.items():
        kept = thinned(every)
        if len(kept) < len(every):
            weighed[name] = weights(every, kept)
        found[name] = [found[name][index] for index in kept]
        values[name] = [every[index] for index in kept]
    return found, values, weighed


def weights(values: Sequence[float], kept: Sequence[int]) -> str:
    """Return the weight of each kept value, such that the weighted mean is the mean of all values.

    A stretch keeps its lowest and its highest value. With equal weights, one spike in a hundred records would count as
    half of them. Instead, the two share the weight of their stretch so that their mean is the mean of the stretch.

    Args:
        values: all values of a metric.
        kept: indices of the kept values.

    Returns:
        A base-36 digit for each kept value; HEAVIEST is the weight of a whole stretch.
    """
    chosen = set(kept)
    found = {}
    edges = _edges(len(values))
    for start, end in pairwise(edges):
        places = [place for place in range(start, end) if place in chosen]
        # The two are the lowest and the highest in either order; a flat stretch keeps one.
        first, last = places[0], places[-1]
        spread = values[last] - values[first]
        mean = sum(values[start:end]) / (end - start)
        share = (mean - values[first]) / spread if spread else 1.0
        found[last] = share
        found[first] = 1.0 - share if first != last else 1.0
    alone = 1.0 / (edges[1] - edges[0])  # the very first and last values count once
    found[0] = found[len(values) - 1] = alone
    digits = ""
    for place in kept:
        digits += DIGITS[min(max(round(HEAVIEST * found[place]), 0), HEAVIEST)]
    return digits


def differences(numbers: Sequence[int]) -> list[int]:
    """Return the first number, then the differences between neighbours."""
    return [after - before for before, after in pairwise((0, *numbers))]


# -- the figure of notebooks ------------------------------------------------------------------------------------------


def figure(found: Sequence[Conclusion], *, metric: str | None, x: Axis, group: int | None) -> Figure:
    """Draw the learning curves of a group, one colour per variant; the arguments are those of `Compared.plot`.

    Raises:
        UserError: no run of the group recorded the metric.
    """
    from plotly.graph_objects import Figure

    sizes = [len(each.group.entries) for each in found]
    place = sizes.index(max(sizes)) if group is None else group - 1
    conclusion = found[place]
    metric = metric or f"validation/{conclusion.group.metric}"
    title = f"group {place + 1} of {len(found)}, which are not comparable" if len(found) > 1 else ""
    axes = {"xaxis_title": AXES[x], "yaxis_title": escape(metric, quote=False)}
    drawn = Figure(layout={**axes, "title": {"text": title}})
    for slot, variant in enumerate(conclusion.variants):
        palette = PALETTES["light"]
        look = {"color": palette[slot % len(palette)], "dash": DASHES[slot // len(palette) % len(DASHES)]}
        for trace in _variant_traces(variant, metric, x):
            drawn.add_scatter(**{"line": look, **trace}, legendgroup=trace["name"])
    if not drawn.data:
        known = {name for entry in conclusion.group.entries for record in entry.records for name in record}
        raise UserError(f"{metric}: no run of the group recorded it against {x}{did_you_mean(metric, known)}")
    return drawn


def _variant_traces(variant: Variant, metric: str, x: Axis) -> Iterator[Trace]:
    """Yield a thin line for each run of a variant; for several in DRAWN, also their mean and its band."""
    name = escape(variant.name, quote=False)  # plotly reads HTML, and a run's name is untrusted
    whole, is_first = [], True
    for entry in variant.entries:
        xs, ys = entry.curve(metric, x)
        if xs:
            own = escape(entry.name, quote=False)
            yield {"x": xs, "y": ys, "name": name, "hovertext": own, "opacity": 0.5, "showlegend": is_first}
            is_first = False
            if entry.status in DRAWN:
                whole.append((xs, ys))
    if len(whole) < 2:
        return
    from numpy import array, interp  # 0.1 s, so only when needed

    # Beyond the end of the shortest run, the mean would be over fewer runs.
    first, last = max(xs[0] for xs, _ in whole), min(xs[-1] for xs, _ in whole)
    grid = sorted({place for xs, _ in whole for place in xs if first <= place <= last})
    values = array([interp(grid, xs, ys) for xs, ys in whole])
    band = {"name": name, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    yield {**band, "x": grid, "y": values.min(0).tolist()}
    yield {**band, "x": grid, "y": values.max(0).tolist(), "fill": "tonexty"}
    mean = f"mean of {len(whole)}"
    yield {"x": grid, "y": values.mean(0).tolist(), "name": name, "hovertext": mean, "showlegend": False}
