"""Decay of a gradient with distance: its rate, its half-life, the spectral radius, and a plot of the norms."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from seqtrain.analysis.gradient_reach import Measured
from seqtrain.analysis.measured import COLORS, new_figure, save
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.metrics.bootstrap import resample

FADED = 1e-3  # fraction of the initial norm
FLOOR = 1e-10  # fraction of the initial norm below which float64 has too few digits for a fit
MIN_POINTS = 4  # smallest number of distances in a fit
RESAMPLES = 200


@dataclass(frozen=True)
class Decay:
    """The decay of the mean norm with distance, over pairs with a path; None where there are too few distances."""

    start: int  # the reference distance: 0, or 1 if the model does not see the token at the target
    at_start: float  # the mean norm there
    rate: float | None  # of the fit norm_j = a rate^j
    rate_error: float | None  # its standard error: the spread over resamples of lanes and examples (bootstrap)
    r2: float | None  # share of the variance of log norms that the line explains: near 1, the decay is geometric
    fitted: tuple[int, int] | None  # the first and the last distance of the fit
    half_life: float | None  # tokens after the start from which on every norm is below half the initial one
    faded: int | None  # the first distance from which on every measured norm is below FADED times the initial one
    measured_to: int  # the largest distance with a path


def mean_norms(measured: Measured) -> tuple[Float[np.ndarray, "L J"], Float[np.ndarray, "L J"], np.ndarray]:
    """Return the mean norm over all counted pairs (L, J), over pairs with a path (L, J), and the share of these (J).

    Entries are nan at a distance without measured pairs, or without a path.
    """
    norms = np.stack(measured.norms).sum(0)
    pairs, reached = np.stack(measured.pairs).sum(0), np.stack(measured.reached).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return norms / pairs, np.where(reached > 0, norms / reached, np.nan), reached / pairs


def decay_of(measured: Measured) -> Decay:
    """Return the decay of the embedded input's gradient, over distances 0 and above.

    Log norms are fitted by least squares, from distance 1 to the last distance before the norm falls below FLOOR.
    """
    past = measured.distances >= 0
    norms = np.stack(measured.norms)[:, 0, past]  # (units, J)
    reached = np.stack(measured.reached)[:, past]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = norms.sum(0) / reached.sum(0)
    known = np.flatnonzero(np.isfinite(means))
    farthest = int(known[-1]) if len(known) else 0
    means = means[: farthest + 1]
    # A bidirectional language model never sees the token that it predicts: the norm there is exactly 0.
    start = 1 if len(means) > 1 and means[0] == 0 else 0
    at_start = float(means[start]) if np.isfinite(means[start]) else math.nan
    above = np.nan_to_num(means) > FLOOR * at_start
    above[:start] = True
    end = farthest if above.all() else int(np.argmin(above)) - 1
    fit = None
    if end >= MIN_POINTS:
        fit = _line(means, end)
    rate = error = r2 = None
    if fit is not None:
        rate, r2 = fit
        error = _spread(norms, reached, end)
    faded = _below(means[start:], FADED * at_start)
    return Decay(
        start=start,
        at_start=at_start,
        rate=rate,
        rate_error=error,
        r2=r2,
        fitted=None if fit is None else (1, end),
        half_life=_half_life(means[start:]),
        faded=None if faded is None else start + faded,
        measured_to=farthest,
    )


def mirrored(measured: Measured) -> Measured:
    """Return the same measurement mirrored: inputs after a loss get distances above 0."""
    turned = Measured(-measured.distances[::-1], measured.layers, losses=measured.losses)
    for norms in measured.norms:
        turned.norms.append(norms[:, ::-1])
    turned.pairs = [pairs[::-1] for pairs in measured.pairs]
    turned.reached = [reached[::-1] for reached in measured.reached]
    return turned


def _line(means: Float[np.ndarray, " J"], end: int) -> tuple[float, float] | None:
    """Return rate and r2 of the fit over distances 1 to `end`; None if a norm is 0 or unknown."""
    distances = np.arange(1, end + 1)
    chosen = means[1 : end + 1]
    if not (chosen > 0).all():
        return None
    logs = np.log(chosen)
    slope, intercept = np.polyfit(distances, logs, 1)
    left = ((logs - slope * distances - intercept) ** 2).sum()
    total = ((logs - logs.mean()) ** 2).sum()
    return float(np.exp(slope)), float(1 - left / total) if total > 0 else 1.0


def _spread(norms: Float[np.ndarray, "N J"], reached: Float[np.ndarray, "N J"], end: int) -> float | None:
    """Return the standard error of the rate, or None if only one unit was measured.

    Args:
        norms: Sum of norms for each unit and distance.
        reached: Number of pairs with a path for each unit and distance.
        end: Last distance of the fit.
    """
    # Not from the residuals of the line: neighbouring distances share paths, so they are not independent.
    if len(norms) < 2:
        return None

    def rate(times_drawn: Int[np.ndarray, " N"]) -> float:
        # If no drawn unit has a distance, it is 0 / 0, and the draw has no rate.
        with np.errstate(invalid="ignore", divide="ignore"):
            found = _line((times_drawn @ norms) / (times_drawn @ reached), end)
        return math.nan if found is None else found[0]

    rates = resample(rate, len(norms), num_resamples=RESAMPLES)
    known = rates[np.isfinite(rates)]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None


def _below(means: Float[np.ndarray, " J"], limit: float) -> int | None:
    """Return the first distance from which on all norms are below the limit, or None if the last one is not."""
    above = np.flatnonzero(~(means < limit))
    first = int(above[-1]) + 1 if len(above) else 0
    return first if first < len(means) else None


def _half_life(means: Float[np.ndarray, " J"]) -> float | None:
    """Return the distance from which on the norm stays below half of the first, by interpolation of log norms.

    The distance is counted from the first norm and uses the norms, not the fit. A gradient that rises again, as at the
    lag of a copied symbol, has not decayed.
    """
    half = means[0] / 2
    first = _below(means, half)
    if not first or not means[first] > 0:
        return None if first is None else float(first)
    before, after = math.log(means[first - 1]), math.log(means[first])
    return first - 1 + (before - math.log(half)) / (before - after)


def spectral_radii(model: SequenceModel) -> dict[str, float]:
    """Return the largest absolute eigenvalue of each recurrent matrix of torch's recurrences, by gate, by name."""
    gates = {"RNN_TANH": ("",), "RNN_RELU": ("",), "GRU": ("reset", "update", "new")}
    gates |= {"LSTM": ("input", "forget", "cell", "output")}
    found = {}
    for place, core in model.named_modules():
        if not isinstance(core, nn.RNNBase):
            continue
        names = gates[core.mode]
        for weight, matrices in core.named_parameters():
            if not weight.startswith("weight_hh"):
                continue
            for name, matrix in zip(names, matrices.detach().double().chunk(len(names)), strict=True):
                radius = torch.linalg.eigvals(matrix).abs().max().item()
                found[f"{place}.{weight} {name}".strip()] = radius
    return found


# -- the plot ------------------------------------------------------------------------------------------------------

ZERO_COLOR = "#dddddd"


def draw(path: Path, measured: dict[str, tuple[Measured, Decay]], cut: int | None, title: str) -> None:
    """Draw the norms by distance: a curve, and a heat map of all layers.

    Args:
        path: A PNG file.
        measured: Measurement of each model, by its label.
        cut: Smallest distance at which training cuts the gradient; None if nothing is cut.
        title: Description of the measurement.
    """
    from matplotlib.colors import ListedColormap, LogNorm

    columns = len(measured)
    layers = max(len(each.layers) for each, _ in measured.values())
    figure = new_figure(6.2 * columns, 4.2 + 0.5 * layers)
    axes = figure.subplots(2, columns, squeeze=False, sharex="col", height_ratios=[3, 0.5 + 0.5 * layers])
    lowest, highest = _limits([each for each, _ in measured.values()])
    image = None
    for column, (name, (each, decay)) in enumerate(measured.items()):
        curve, heat = axes[0, column], axes[1, column]
        _curve(curve, each, decay, COLORS[column])
        curve.set(yscale="log", ylim=(lowest, highest * 2), title=name)
        curve.set_ylabel("norm of d loss_t / d x_(t-j)")
        # An exact zero cannot be drawn on a logarithmic scale, so it gets a separate colour. What was not measured is
        # left white.
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
    save(figure, path)


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
