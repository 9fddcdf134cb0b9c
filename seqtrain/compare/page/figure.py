"""The page's learning curves as a figure of plotly's, for notebooks.

The page itself draws with assets/curves.js, which follows the reader's filter; both take data from curves.py and looks
from curves.py, and a browser test holds this figure to what the page draws of a metric before the reader smooths,
groups or clips it, trace by trace. The page puts the curves of training beside; a figure has what it was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from seqtrain.compare.entries import Axis, Entry
from seqtrain.compare.page import curves
from seqtrain.compare.verdict import Conclusion
from seqtrain.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

REST = "#9aa3b2"  # of variants beyond the styles; --rest of page.css
DRAWN = ("finished", "running")  # statuses whose runs a mean is drawn of

Trace = dict[str, Any]


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
    axes = {"xaxis_title": curves.AXES[x], "yaxis_title": _plain(spoken(metric, conclusion))}
    return Figure(traces, {**axes, "title": {"text": "; ".join(title)}, "hovermode": "closest"})


def spoken(metric: str, conclusion: Conclusion) -> str:
    """Return a recorded metric in words: "validation/bits_per_byte" is "bits per byte, validation"."""
    split, _, name = metric.rpartition("/")
    words = curves.WORDS.get(name, name.replace("_", " "))
    unit = conclusion.group.entries[0].unit(name)
    if unit.lower() == words.lower():
        words = unit
    elif name not in curves.WORDS:
        words = f"{words} ({unit})"
    return ", ".join(filter(None, (words, split)))


def _largest(found: Sequence[Conclusion]) -> int:
    """Return the index of the group with the most runs; of several, the first."""
    return max(range(len(found)), key=lambda place: len(found[place].group.entries))


def _traces(conclusion: Conclusion, metric: str, x: Axis) -> tuple[list[Trace], int]:
    """Return all traces, the best variant's last and so above the others, and the number of grey variants."""
    lines, known = [], set()
    for entry in conclusion.group.entries:
        drawn = curves.curves(entry.records)
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
        if slot >= curves.MOST_STYLES:
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
        traces += _variant_traces(_plain(name), own, look)
    return traces, max(len(conclusion.variants) - curves.MOST_STYLES, 0)


def _line(entry: Entry, drawn: curves.Curves, metric: str, x: Axis) -> Line:
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
        words += [_plain(line.entry.name)] * len(line.x) + [""]
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
    if len(grid) > curves.MOST_POINTS:
        skip = (len(grid) - 1) / (curves.MOST_POINTS - 1)
        # Half upwards, as JavaScript rounds.
        grid = [grid[int(place * skip + 0.5)] for place in range(curves.MOST_POINTS)]
    if len(lines) < 2 or not grid:
        return [], [], [], []
    values = array([interp(grid, line.x, line.y) for line in lines])
    return grid, values.mean(axis=0).tolist(), values.min(axis=0).tolist(), values.max(axis=0).tolist()


def _look(slot: int) -> Look:
    palette = curves.PALETTES["light"]
    kind = slot % len(palette)
    return Look(palette[kind], curves.DASHES[slot // len(palette)], curves.SYMBOLS[kind])


def _veiled(color: str, share: float) -> str:
    """Return the colour with some transparency."""
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return f"rgba({red},{green},{blue},{share})"


def _plain(text: str) -> str:
    """Return the text with signs escaped that plotly would read as HTML: a run's name is untrusted."""
    return escape(text, quote=False)
