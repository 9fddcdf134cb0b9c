"""Curves of the page as plain numbers, thinned, and as a figure of plotly's for notebooks.

The page itself draws with assets/curves.js, which follows the reader's filter. A browser test holds the figure to what
the page draws of a metric before the reader smooths, groups or clips it, trace by trace. The page puts the curves of
training beside; a figure has what it was asked for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from seqtrain.compare.entries import Axis, Entry, number
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
MOST_STYLES = len(PALETTES["light"]) * len(DASHES)  # further variants are grey
WORDS = {
    "tokens_per_second": "tokens per second",
    "lr": "learning rate",
    "gradient_norm": "gradient norm",
    "cpu_percent": "CPU (%; 100: one core is busy)",
    "memory_mb": "memory (MB)",
    "gpu_percent": "GPU (%)",
    "gpu_memory_mb": "GPU memory (MB)",
}

# What the page is given of it.
PLAIN = {"axes": AXES, "palettes": PALETTES, "dashes": DASHES, "symbols": SYMBOLS, "words": WORDS}

MOST_POINTS = 200  # of a curve
TICKS = 20_000  # the clock of a run is drawn to a fraction of its length that no screen shows
OTHERS = ("lr", "gradient_norm", "tokens_per_second")  # drawn beside what begins with one of SPLITS
SPLITS = ("train/", "validation/", "system/")
HEAVIEST = 35  # of the weights of points: one character each, to base 36
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

REST = "#9aa3b2"  # of variants beyond the styles; --rest of page.css
DRAWN = ("finished", "running")  # statuses whose runs a mean is drawn of

Trace = dict[str, Any]


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[int]:
    """Return the indices of the values to draw, in order, at most `most`: the first, the last, each stretch's extremes.

    Stretches are equally long, so the smallest and the largest of all are always among them.
    """
    if len(values) <= most:
        return list(range(len(values)))
    kept = {0, len(values) - 1}
    for start, end in pairwise(_edges(len(values), most)):
        kept.add(min(range(start, end), key=values.__getitem__))
        kept.add(max(range(start, end), key=values.__getitem__))
    return sorted(kept)


def _edges(count: int, most: int) -> list[int]:
    """Return the start of each stretch of `count` values, and the end of the last one."""
    num_stretches = most // 2 - 1  # each keeps two values, and two are left for the ends
    inner = count - 2
    return [1 + stretch * inner // num_stretches for stretch in range(num_stretches + 1)]


def short(value: float) -> float:
    """Round the number to 5 significant digits."""
    return float(f"{value:.5g}")


@dataclass(frozen=True)
class Curves:
    """The curves of one run: the clock of the records that any of them needs, and each metric at some of these.

    Whole numbers are written as differences from one to the next, which pack well.
    """

    steps: list[int]
    tokens: list[int]
    seconds: list[int]  # in units of `tick`
    tick: float  # seconds
    metrics: dict[str, tuple[list[int], list[float]]]  # by name: places in the clock, and the values there
    weights: dict[str, str] = field(default_factory=dict)  # by name, of thinned ones: as of `weights`

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
    # Metrics are thinned apart, yet share the clock: it holds each record that any of them draws, once.
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


def weights(values: Sequence[float], kept: Sequence[int], most: int = MOST_POINTS) -> str:
    """Return the weight of each kept value, such that the weighted mean is the mean of all values.

    A stretch keeps its lowest and its highest value. By equal weights, one spike in a hundred records would count as
    half of them; these two share the weight of their stretch such that their mean is its own.

    Args:
        values: all values of a metric.
        kept: indices of the kept values.
        most: the number of values to which they were thinned.

    Returns:
        A digit to base 36 for each kept value; HEAVIEST is a whole stretch.
    """
    chosen = set(kept)
    found = {}
    edges = _edges(len(values), most)
    for start, end in pairwise(edges):
        places = [place for place in range(start, end) if place in chosen]
        # The two are the lowest and the highest in either order; a flat stretch keeps one.
        first, last = places[0], places[-1]
        spread = values[last] - values[first]
        mean = sum(values[start:end]) / (end - start)
        share = (mean - values[first]) / spread if spread else 1.0
        found[last] = share
        found[first] = 1.0 - share if first != last else 1.0
    alone = 1.0 / (edges[1] - edges[0])  # the first value of all and the last one stand for themselves
    found[0] = found[len(values) - 1] = alone
    digits = ""
    for place in kept:
        digits += DIGITS[min(max(round(HEAVIEST * found[place]), 0), HEAVIEST)]
    return digits


def differences(numbers: Sequence[int]) -> list[int]:
    """Return the first number, then the difference from each to the next."""
    return [after - before for before, after in pairwise((0, *numbers))]


# -- the figure of notebooks ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A run's curve."""

    entry: Entry
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Look:
    """The look of a variant's curves."""

    color: str
    dash: str
    symbol: str


def figure(found: Sequence[Conclusion], *, metric: str | None, x: Axis, group: int | None) -> Figure:
    """Draw the learning curves of a group; options as those of `Compared.plot`.

    Raises:
        UserError: no run of the group recorded the metric.
    """
    from plotly.graph_objects import Figure

    place = _largest(found) if group is None else group - 1
    conclusion = found[place]
    metric = metric or f"validation/{conclusion.group.metric}"
    traces, grey = _traces(conclusion, metric, x)
    title = [f"group {place + 1} of {len(found)}, which are not alike"] * (len(found) > 1)
    if grey:
        title.append(f"{grey} of {len(conclusion.variants)} variants are grey, for want of colours")
    axes = {"xaxis_title": AXES[x], "yaxis_title": _escaped(spoken(metric, conclusion))}
    return Figure(traces, {**axes, "title": {"text": "; ".join(title)}, "hovermode": "closest"})


def spoken(metric: str, conclusion: Conclusion) -> str:
    """Return a recorded metric in words: "validation/bits_per_byte" is "bits per byte, validation"."""
    split, _, name = metric.rpartition("/")
    words = WORDS.get(name, name.replace("_", " "))
    unit = conclusion.group.entries[0].unit(name)
    if unit.lower() == words.lower():
        words = unit
    elif name not in WORDS:
        words = f"{words} ({unit})"
    return ", ".join(filter(None, (words, split)))


def _largest(found: Sequence[Conclusion]) -> int:
    """Return the index of the group with the most runs; of several, the first."""
    return max(range(len(found)), key=lambda place: len(found[place].group.entries))


def _traces(conclusion: Conclusion, metric: str, x: Axis) -> tuple[list[Trace], int]:
    """Return all traces, the best variant's last and so above the others, and the number of grey variants."""
    lines, known = [], set()
    for entry in conclusion.group.entries:
        drawn = curves(entry.records)
        known.update(drawn.metrics)
        line = _line(entry, drawn, metric, x)
        if line.x:
            lines.append(line)
    if not lines:
        raise UserError(f"{metric}: no run of the group recorded it against {x}{did_you_mean(metric, known)}")
    styled, grey = [], set()
    # A variant has its slot whether or not it is drawn: one colour through all metrics.
    for slot, variant in enumerate(conclusion.variants):
        own = [line for line in lines if line.entry in variant.entries]
        if slot >= MOST_STYLES:
            grey.update(variant.entries)
        elif own:
            styled.append((variant.name, own, _look(slot)))
    rest = [line for line in lines if line.entry in grey]
    traces = []
    if rest:
        thin = {"color": _veiled(REST, 0.35), "width": 1}
        traces.append(_joined(rest) | {"line": thin, "hoverinfo": "skip", "showlegend": False})
    # What is drawn last lies above the others.
    for name, own, look in reversed(styled):
        traces += _variant_traces(_escaped(name), own, look)
    return traces, max(len(conclusion.variants) - MOST_STYLES, 0)


def _line(entry: Entry, drawn: Curves, metric: str, x: Axis) -> Line:
    """Return a run's curve; it has no points if the run did not record the metric or does not know its cost."""
    units = {"steps": 1.0, "tokens": 1.0, "seconds": drawn.tick, "flops": entry.flops_per_token}
    unit = units[x]
    if metric not in drawn.metrics or unit is None:
        return Line(entry, [], [])
    # FLOPs are so many for each token.
    clocks = {"steps": drawn.steps, "seconds": drawn.seconds}
    clock = list(accumulate(clocks.get(x, drawn.tokens)))
    rows, values = drawn.metrics[metric]
    return Line(entry, [clock[row] * unit for row in accumulate(rows)], list(values))


def _variant_traces(name: str, own: Sequence[Line], look: Look) -> list[Trace]:
    """Return a band, the runs and their mean; without a band, one line for each run."""
    whole = [line for line in own if line.entry.status in DRAWN]
    marker = {"symbol": look.symbol, "size": 7, "color": look.color, "maxdisplayed": 12}
    stroke = {"color": look.color, "width": 2.2, "dash": look.dash}
    main: Trace = {"mode": "lines+markers", "line": stroke, "marker": marker, "name": name, "legendgroup": name}
    xs, middle, low, high = _band(whole)
    if len(xs) < 2:  # one run, or several that have no stretch in common
        words = f"{name}<br>%{{text}}<br>%{{y:.5~g}} at %{{x:.4~s}}<extra></extra>"
        traces: list[Trace] = []
        for line in own:
            # The first of them stands for the variant in the legend.
            traces.append(_joined([line]) | main | {"hovertemplate": words, "showlegend": not traces})
        return traces
    hidden = {"legendgroup": name, "showlegend": False}
    band: Trace = {"x": [*xs, *xs[::-1]], "y": [*high, *low[::-1]], "mode": "lines", "line": {"width": 0}}
    band |= {"fill": "toself", "fillcolor": _veiled(look.color, 0.16), "hoverinfo": "skip"} | hidden
    runs = _joined(own) | {"line": {"color": _veiled(look.color, 0.4), "width": 1}} | hidden
    runs["hovertemplate"] = "%{text}<br>%{y:.5~g} at %{x:.4~s}<extra></extra>"
    words = f"{name}<br>mean of {len(whole)}: %{{y:.5~g}} at %{{x:.4~s}}<extra></extra>"
    return [band, runs, {**main, "x": xs, "y": middle, "hovertemplate": words}]


def _joined(lines: Sequence[Line]) -> Trace:
    """Return the lines as one trace, with a gap behind each."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    words: list[str] = []
    for line in lines:
        xs += [*line.x, None]
        ys += [*line.y, None]
        words += [_escaped(line.entry.name)] * len(line.x) + [""]
    return {"x": xs, "y": ys, "text": words, "mode": "lines", "connectgaps": False}


def _band(lines: Sequence[Line]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the grid that all lines cover, and their mean, minimum and maximum there."""
    from numpy import array, interp  # 0.1 s, which only a figure needs

    first, last = -math.inf, math.inf
    every: set[float] = set()
    for line in lines:
        first, last = max(first, line.x[0]), min(last, line.x[-1])
        every.update(line.x)
    # Beyond the end of the shortest run, the mean would be one over fewer runs.
    grid = [place for place in sorted(every) if first <= place <= last]
    if len(grid) > MOST_POINTS:
        skip = (len(grid) - 1) / (MOST_POINTS - 1)
        # Half upwards, as JavaScript rounds.
        grid = [grid[int(place * skip + 0.5)] for place in range(MOST_POINTS)]
    if len(lines) < 2 or not grid:
        return [], [], [], []
    values = array([interp(grid, line.x, line.y) for line in lines])
    return grid, values.mean(axis=0).tolist(), values.min(axis=0).tolist(), values.max(axis=0).tolist()


def _look(slot: int) -> Look:
    palette = PALETTES["light"]
    kind = slot % len(palette)
    return Look(palette[kind], DASHES[slot // len(palette)], SYMBOLS[kind])


def _veiled(color: str, share: float) -> str:
    """Return the colour with some transparency."""
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return f"rgba({red},{green},{blue},{share})"


def _escaped(text: str) -> str:
    """Return the text with signs escaped that plotly would read as HTML: a run's name is untrusted."""
    return escape(text, quote=False)
