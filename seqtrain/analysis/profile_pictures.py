"""Pictures of the cost of models: time by length and width, and the crossover of attention and recurrence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from seqtrain.analysis.formula import RECURRENCE
from seqtrain.analysis.pictures import COLORS, new_figure, save
from seqtrain.analysis.power_law import PowerLaw
from seqtrain.analysis.profile import Grid, Profile, crossovers, pairs
from seqtrain.analysis.profile_memory import KINDS, OPTIMIZER, WEIGHTS, MemoryProfile
from seqtrain.analysis.timing import ALONE, TRAINING

TIMES, CROSSOVER, MEMORY = "times.png", "crossover.png", "memory.png"
CONSTANT_IN_T = (WEIGHTS, OPTIMIZER)
KIND_WORDS = {RECURRENCE: "recurrence", ALONE: "products of attention, one layer"}
AXES = {"T": "sequence length T (tokens)", "d": "width d"}


def draw(profiles: Sequence[Profile], memory: Sequence[MemoryProfile], grid: Grid, folder: Path) -> tuple[str, ...]:
    """Write the pictures into a folder; return their names. The crossover is drawn only if two models may cross.

    Args:
        profiles: Times of the models.
        memory: Memory of the models.
        grid: The sizes.
        folder: Folder of the pictures.
    """
    _draw_times(profiles, grid, folder / TIMES)
    _draw_memory(memory, grid, folder / MEMORY)
    if not pairs(profiles):
        # The picture of an earlier call would seem to show these models.
        (folder / CROSSOVER).unlink(missing_ok=True)
        return TIMES, MEMORY
    _draw_costs(profiles, grid, folder / CROSSOVER)
    return TIMES, CROSSOVER, MEMORY


def _exponent(law: PowerLaw, axis: str) -> str:
    return f"{axis}^{law.exponent:.2f}" if law.is_clear else "no clear exponent"


def _draw_times(profiles: Sequence[Profile], grid: Grid, path: Path) -> None:
    """Draw the time by kind of work, its fit, and theory (dashed): a row for each model, a column for each axis."""
    figure = new_figure(9.6, 2.9 * len(profiles))
    for row, profile in enumerate(profiles):
        for column, axis in enumerate(("T", "d")):
            axes = figure.add_subplot(len(profiles), 2, 2 * row + column + 1)
            sizes = grid.along(axis)
            # The value of each size along this axis; the other one stays the same.
            across = [size.length if axis == "T" else size.dim for size in sizes]
            fits = [fitted for fitted in profile.fits if fitted.axis == axis and fitted.kind != TRAINING]
            for color, fitted in zip(COLORS, fits, strict=False):
                # Not every kind of work is done at every size.
                values = [1000 * profile.seconds[size].get(fitted.kind, float("nan")) for size in sizes]
                label = fitted.kind
                if fitted.law is not None:
                    label += f": {_exponent(fitted.law, axis)}"
                axes.plot(across, values, "o-", color=color, label=label, markersize=4)
                if fitted.theory is not None and fitted.law is not None:
                    # Through the last point, where the work weighs most beside what a call costs.
                    theory = [values[-1] * (size / across[-1]) ** fitted.theory for size in across]
                    axes.plot(across, theory, "--", color=color, linewidth=1, label=f"theory: {axis}^{fitted.theory:g}")
            axes.set(xscale="log", xlabel=AXES[axis], ylabel="ms, forward", title=profile.name)
            axes.set_xticks(across, [str(size) for size in across])
            if axes.lines:
                axes.set_yscale("log")
                axes.legend(fontsize=7)
            else:  # of a model that adds vectors up, and does no other work
                axes.set_yticks([])
                axes.text(0.5, 0.5, "no work of a kind that is timed", ha="center", transform=axes.transAxes)
            # Ticks of a logarithmic axis stand at powers of ten, and no size does.
            axes.minorticks_off()
    save(figure, path)


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
        # Outside the lengths that were measured the fits are a guess.
        if grid.lengths[0] <= crossing.measured <= grid.lengths[-1]:
            right.axvline(crossing.measured, color=COLORS[-1], linewidth=1, linestyle="--")
    left.set(xscale="log", yscale="log", xlabel=AXES["T"], ylabel="operations a token, forward", title="Counted")
    title = "Measured (dashed: where fits cross)"
    right.set(xscale="log", yscale="log", xlabel=AXES["T"], ylabel="ms, forward", title=title)
    for axes in (left, right):
        axes.set_xticks(grid.lengths, [str(length) for length in grid.lengths])
        axes.minorticks_off()
        if axes.lines:
            axes.legend(fontsize=7)
    save(figure, path)


def _draw_memory(profiles: Sequence[MemoryProfile], grid: Grid, path: Path) -> None:
    """Draw the bytes of each kind, their fit, and theory (dashed): a row for each model, a column for each axis."""
    figure = new_figure(9.6, 2.9 * len(profiles))
    for row, profile in enumerate(profiles):
        for column, axis in enumerate(("T", "d")):
            axes = figure.add_subplot(len(profiles), 2, 2 * row + column + 1)
            sizes = grid.along(axis)
            across = [size.length if axis == "T" else size.dim for size in sizes]
            for color, kind in zip(COLORS, KINDS, strict=False):
                # Weights know no T, and a flat line would only hide the others.
                if axis == "T" and kind in CONSTANT_IN_T:
                    continue
                for fitted in profile.fits:
                    if (fitted.kind, fitted.axis) != (kind, axis):
                        continue
                    values = [profile.cells[size][kind] / 2**20 for size in sizes]
                    label = f"{KINDS[kind]}: {_exponent(fitted.law, axis)}"
                    axes.plot(across, values, "o-", color=color, label=label, markersize=4)
                    if fitted.theory is None:
                        continue
                    theory = [values[-1] * (size / across[-1]) ** fitted.theory for size in across]
                    axes.plot(across, theory, "--", color=color, linewidth=1, label=f"theory: {axis}^{fitted.theory:g}")
            still = f"d = {grid.at_dim}" if axis == "T" else f"T = {grid.at_length}"
            title = f"{profile.name}: memory of a training pass ({still})"
            axes.set(xscale="log", yscale="log", xlabel=AXES[axis], ylabel="MiB", title=title)
            axes.set_xticks(across, [str(size) for size in across])
            axes.minorticks_off()
            # Beside the lines: up to nine names would lie on them.
            axes.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)
