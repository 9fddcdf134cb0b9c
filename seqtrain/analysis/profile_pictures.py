"""Plots of the cost of models: time by length and width, and the crossover of attention and recurrence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqtrain.analysis.formula import RECURRENCE
from seqtrain.analysis.measured import COLORS, new_figure, save
from seqtrain.analysis.profile import ALONE, TRAINING, Fitted, Grid, Profile, Size, crossovers, pairs
from seqtrain.analysis.profile_memory import KINDS, OPTIMIZER, WEIGHTS, MemoryProfile

TIMES, CROSSOVER, MEMORY = "times.png", "crossover.png", "memory.png"
CONSTANT_IN_T = (WEIGHTS, OPTIMIZER)
KIND_WORDS = {RECURRENCE: "recurrence", ALONE: "products of attention, one layer"}
AXES = {"T": "sequence length T (tokens)", "d": "width d"}


def draw(profiles: Sequence[Profile], memory: Sequence[MemoryProfile], grid: Grid, folder: Path) -> tuple[str, ...]:
    """Write the plots to a folder; return their names. The crossover is drawn only if two models may cross.

    Args:
        profiles: Times of the models.
        memory: Memory of the models.
        grid: The sizes.
        folder: Folder of the plots.
    """
    _draw_times(profiles, grid, folder / TIMES)
    _draw_memory(memory, grid, folder / MEMORY)
    if not pairs(profiles):
        # A plot left by an earlier call would seem to show these models.
        (folder / CROSSOVER).unlink(missing_ok=True)
        return TIMES, MEMORY
    _draw_costs(profiles, grid, folder / CROSSOVER)
    return TIMES, CROSSOVER, MEMORY


def _draw_times(profiles: Sequence[Profile], grid: Grid, path: Path) -> None:
    """Draw the time by kind of work, its fit, and theory (dashed): a row for each model, a column for each axis."""
    figure = new_figure(9.6, 2.9 * len(profiles))
    rows = figure.subplots(len(profiles), 2, squeeze=False)
    for profile, of_model in zip(profiles, rows, strict=True):
        for axis, axes in zip(("T", "d"), of_model, strict=True):
            fits = [fitted for fitted in profile.fits if fitted.axis == axis and fitted.kind != TRAINING]
            for color, fitted in zip(COLORS, fits, strict=False):
                _growth(axes, fitted, fitted.kind, profile.seconds, 1000, grid, color)
            axes.set(ylabel="ms, forward", title=profile.name)
            if axes.lines:
                axes.legend(fontsize=7)
            else:  # a model that only adds vectors
                axes.text(0.5, 0.5, "no timed kind of work", ha="center", transform=axes.transAxes)
            _scale(axes, axis, grid)
    save(figure, path)


def _growth(
    axes: Any,
    fitted: Fitted,
    label: str,
    measured: Mapping[Size, Mapping[str, float]],
    factor: float,
    grid: Grid,
    color: str,
) -> None:
    """Draw the measurements of one kind, with the exponent in the label, and theory (dashed) through the last one."""
    sizes, values = grid.across(fitted.axis), []
    for size in grid.along(fitted.axis):
        # Not every kind of work is done at every size.
        values.append(factor * measured[size].get(fitted.kind, math.nan))
    if fitted.law is not None:
        slope = f"{fitted.axis}^{fitted.law.exponent:.2f}" if fitted.law.is_clear else "no clear exponent"
        label += f": {slope}"
    axes.plot(sizes, values, "o-", color=color, label=label, markersize=4)
    if fitted.theory is not None and fitted.law is not None:
        # Through the last point, where call overhead matters least.
        theory = [values[-1] * (size / sizes[-1]) ** fitted.theory for size in sizes]
        axes.plot(sizes, theory, "--", color=color, linewidth=1, label=f"theory: {fitted.theory_words()}")


def _scale(axes: Any, axis: str, grid: Grid) -> None:
    """Set logarithmic axes with a tick at each measured size."""
    sizes = grid.across(axis)
    axes.set(xscale="log", yscale="log" if axes.lines else "linear", xlabel=AXES[axis])
    axes.set_xticks(sizes, [str(size) for size in sizes])
    # Minor ticks of a logarithmic axis do not match the sizes.
    axes.minorticks_off()
    if not axes.lines:
        axes.set_yticks([])


def _draw_costs(profiles: Sequence[Profile], grid: Grid, path: Path) -> None:
    """Draw counted operations a token (left), and the times of recurrences and of attention's products (right)."""
    figure = new_figure(9.6, 3.6)
    left, right = figure.subplots(1, 2)
    for color, profile in zip(COLORS, profiles, strict=False):
        lengths = [row["length"] for row in profile.counted]
        left.plot(lengths, [row["flops"] for row in profile.counted], "o-", color=color, label=profile.name)
        for kind, style in ((RECURRENCE, "-"), (ALONE, ":")):
            seconds = [profile.seconds[size].get(kind, float("nan")) for size in grid.along("T")]
            # A model has one of the two, or neither.
            if math.isnan(seconds[-1]):
                continue
            values = [1000 * value for value in seconds]
            right.plot(
                grid.lengths, values, style, marker="o", color=color, label=f"{profile.name}: {KIND_WORDS[kind]}"
            )
    for crossing in crossovers(profiles, grid.at_dim):
        # Do not draw a crossover extrapolated beyond the measured lengths.
        if grid.lengths[0] <= crossing.measured <= grid.lengths[-1]:
            right.axvline(crossing.measured, color=COLORS[-1], linewidth=1, linestyle="--")
    left.set(ylabel="operations a token, forward", title="Counted")
    right.set(ylabel="ms, forward", title="Measured (dashed: where fits cross)")
    for axes in (left, right):
        _scale(axes, "T", grid)
        if axes.lines:
            axes.legend(fontsize=7)
    save(figure, path)


def _draw_memory(profiles: Sequence[MemoryProfile], grid: Grid, path: Path) -> None:
    """Draw the bytes of each kind, their fit, and theory (dashed): a row for each model, a column for each axis."""
    figure = new_figure(9.6, 2.9 * len(profiles))
    rows = figure.subplots(len(profiles), 2, squeeze=False)
    for profile, of_model in zip(profiles, rows, strict=True):
        for axis, axes in zip(("T", "d"), of_model, strict=True):
            for color, kind in zip(COLORS, KINDS, strict=False):
                # Weights do not depend on T; a flat line would only hide the others.
                if axis == "T" and kind in CONSTANT_IN_T:
                    continue
                for fitted in profile.fits:
                    if (fitted.kind, fitted.axis) == (kind, axis):
                        _growth(axes, fitted, KINDS[kind], profile.cells, 2**-20, grid, color)
            still = f"d = {grid.at_dim}" if axis == "T" else f"T = {grid.at_length}"
            axes.set(ylabel="MiB", title=f"{profile.name}: memory of a training pass ({still})")
            _scale(axes, axis, grid)
            # Outside the axes: up to nine labels would hide the lines.
            axes.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)
