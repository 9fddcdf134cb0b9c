"""Pictures of gradients by distance: a curve, and a heat map of layers, trained and untrained."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from seqtrain.analysis import pictures
from seqtrain.analysis.gradient_decay import Decay, mean_norms
from seqtrain.analysis.gradient_reach import Measured

ZERO_COLOR = "#dddddd"


def draw(path: Path, measured: dict[str, tuple[Measured, Decay]], cut: int | None, title: str) -> None:
    """Draw the picture.

    Args:
        path: A PNG file.
        measured: Measurement of each model, by its label.
        cut: Distance from which on training cuts the gradient; None if nothing is cut.
        title: Description of the measurement.
    """
    from matplotlib.colors import ListedColormap, LogNorm

    columns = len(measured)
    layers = max(len(each.layers) for each, _ in measured.values())
    figure = pictures.new_figure(6.2 * columns, 4.2 + 0.5 * layers)
    axes = figure.subplots(2, columns, squeeze=False, sharex="col", height_ratios=[3, 0.5 + 0.5 * layers])
    lowest, highest = _limits([each for each, _ in measured.values()])
    image = None
    for column, (name, (each, decay)) in enumerate(measured.items()):
        curve, heat = axes[0, column], axes[1, column]
        _curve(curve, each, decay, pictures.COLORS[column])
        curve.set(yscale="log", ylim=(lowest, highest * 2), title=name)
        curve.set_ylabel("norm of d loss_t / d x_(t-j)")
        # An exact zero has no place on a logarithmic scale: it is drawn in a colour of its own, and what was not
        # measured in none.
        values = mean_norms(each)[0]
        shades = np.ma.masked_where(~(values > 0), values)
        zeros = np.ma.masked_where(values != 0, values)
        edges = np.append(each.distances - 0.5, each.distances[-1] + 0.5)
        rows = np.arange(len(each.layers) + 1)
        heat.pcolormesh(edges, rows, zeros, cmap=ListedColormap([ZERO_COLOR]))
        image = heat.pcolormesh(edges, rows, shades, norm=LogNorm(lowest, highest), cmap="viridis")
        heat.set_yticks(rows[:-1] + 0.5, each.layers)
        heat.invert_yaxis()
        heat.set_xlabel(f"distance j in {each.unit}s from {each.origin}\n(grey: exactly 0; white: not measured)")
        for part in (curve, heat):
            if cut is not None and each.distances[0] <= cut <= each.distances[-1]:
                part.axvline(cut - 0.5, color="black", linewidth=1, linestyle=":")
        if cut is not None and cut <= each.distances[-1]:
            label = f"from k2 = {cut} on exactly 0 "
            place = curve.get_xaxis_transform()
            curve.text(cut - 0.5, 0.02, label, transform=place, fontsize=8, horizontalalignment="right")
        curve.legend(fontsize=8, loc="upper right")
    if image is not None:
        figure.colorbar(image, ax=axes[1, :].tolist(), label="mean norm")
    figure.suptitle(textwrap.fill(title, 60 * columns), fontsize=10)
    pictures.save(figure, path)


def _limits(all_measured: list[Measured]) -> tuple[float, float]:
    """Return the range of norms to draw, at most twelve powers of ten."""
    values = np.concatenate([mean_norms(each)[0].ravel() for each in all_measured])
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 1e-12, 1.0
    highest = float(values.max())
    return max(float(values.min()), highest * 1e-12) / 2, highest


def _curve(axes: Any, measured: Measured, decay: Decay, color: str) -> None:
    """Draw the mean norm over all pairs and over pairs with a path, and the fitted line."""
    every, with_path, share = mean_norms(measured)
    axes.plot(measured.distances, np.where(every[0] > 0, every[0], np.nan), color=color, label="mean over all pairs")
    if (share[np.isfinite(share)] < 1).any():
        axes.plot(measured.distances, with_path[0], ".", color=color, markersize=4, label="over pairs inside the cut")
    if decay.rate is not None and decay.fitted is not None:
        first, last = decay.fitted
        distances = np.arange(first, last + 1)
        logs = np.log(with_path[0][measured.distances >= 0][first : last + 1])
        line = np.exp(logs.mean() + np.log(decay.rate) * (distances - distances.mean()))
        axes.plot(distances, line, "--", color=color, label=f"fit: times {decay.rate:.3g} a {measured.unit}")
