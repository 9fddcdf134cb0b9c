"""A picture of gates: units down, those that hold longest on top, and tokens across."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from seqtrain.inference.attention_maps import (
    INCHES_PER_TOKEN,
    MAX_PIXELS,
    MAX_TITLE_CHARACTERS,
    save_picture,
    shorten,
    words_left_out,
)
from seqtrain.inference.gates import HOLDING, Gates

MAX_LAYERS = 6  # in a picture
MAX_TOKENS = 60  # across a picture
MAX_UNITS = 256  # down a picture
SIGNED = ("cell", "hidden")  # below zero, too; gates are not
DRAWN = {"lstm": ("input", "forget", "output", "cell"), "gru": ("reset", "update", "hidden")}
LAYER_INCHES = 2.8
LEAST_MAP_INCHES = 2.2
MARGIN_INCHES = 1.6
UNIT_TICKS = 5  # beside a map, each with how long its unit holds
SAID = "units are sorted by how long they hold: -1 / log(mean {gate} gate over this text), in tokens"


def draw(layers: Sequence[Gates], path: Path, title: str) -> str:
    """Draw a PNG of layers (rows) and gates (columns).

    Returns:
        What was left out, in words, or nothing.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    shown = list(layers[:MAX_LAYERS])
    columns = max(len(DRAWN[gates.kind]) for gates in shown)
    tokens = min(max(len(gates.tokens) for gates in shown), MAX_TOKENS)
    # Tokens need room for their names, units do not: they are as high as the layer allows.
    width = MARGIN_INCHES + columns * max(tokens * INCHES_PER_TOKEN, LEAST_MAP_INCHES)
    height = 1.2 + len(shown) * LAYER_INCHES
    figure = Figure(figsize=(width, height), dpi=min(140, MAX_PIXELS / max(width, height)), layout="constrained")
    grid = figure.subplots(len(shown), columns, squeeze=False)
    image = None
    for row, gates in zip(grid, shown, strict=True):
        for axes in row[len(DRAWN[gates.kind]) :]:
            axes.set_axis_off()
        for axes, name in zip(row, DRAWN[gates.kind], strict=False):
            drawn = _draw_values(axes, gates, name)
            if name not in SIGNED:  # all gates share one scale
                image = drawn
        _name_units(row[0], gates)
    assert image is not None  # each kind of layer has gates
    bar = figure.colorbar(image, ax=grid, location="top", fraction=0.02, pad=0.02, shrink=0.3, ticks=[0, 0.5, 1])
    bar.ax.tick_params(labelsize=7)
    left_out = words_left_out(
        {
            "layers": (len(shown), len(layers)),
            "units": (MAX_UNITS, max(len(gates.order) for gates in layers)),
            "tokens": (MAX_TOKENS, max(len(gates.tokens) for gates in layers)),
        }
    )
    save_picture(figure, _heading(layers, title, left_out, width), path)
    return left_out


def _heading(layers: Sequence[Gates], title: str, left_out: str, width: float) -> str:
    holding = " or ".join(dict.fromkeys(HOLDING[layer.kind] for layer in layers))
    lines = [shorten(title, MAX_TITLE_CHARACTERS), SAID.format(gate=holding)]
    if left_out:
        lines.append(f"not shown: {left_out}")
    return "\n".join(textwrap.fill(line, int(12 * width)) for line in lines)


def _draw_values(axes: Any, gates: Gates, name: str) -> Any:
    """Draw one map: units down, tokens across."""
    values = gates.values[name][:MAX_TOKENS, gates.order[:MAX_UNITS]].double().T.numpy()
    title, colors, low, high = f"{name} gate", "viridis", 0.0, 1.0
    if name in SIGNED:
        # Zero is white on any scale, so that a sign can be seen.
        high = float(abs(values).max()) or 1.0
        title, colors, low = f"{name}: red +{high:.2g}, blue -{high:.2g}", "RdBu_r", -high
    image = axes.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=8)
    labels = [shorten(token) for token in gates.tokens[:MAX_TOKENS]]
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7, parse_math=False)
    axes.set_yticks([])
    axes.tick_params(length=0)
    return image


def _name_units(axes: Any, gates: Gates) -> None:
    """Label some of the units, beside the first map of a layer, with their hold times."""
    times = gates.hold_times[gates.order[:MAX_UNITS]].tolist()
    # From the longest to the shortest, in equal steps of rank.
    ticks = torch.linspace(0, len(times) - 1, min(UNIT_TICKS, len(times))).round().int().tolist()
    axes.set_yticks(ticks, [f"{words_of_time(times[tick])} tokens" for tick in ticks], fontsize=7)
    axes.set_ylabel(f"{gates.name}\nunits, by how long they hold", fontsize=8)


def words_of_time(time: float) -> str:
    """Format a time in tokens with three digits; infinity, of a gate that is always open, becomes ∞."""
    if math.isinf(time):
        return "∞"
    return f"{time:.3g}"
