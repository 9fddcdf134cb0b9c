"""Pictures of what models cost: time against length and width, and where attention becomes dearer than a recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqtrain.analysis.pictures import COLORS, new_figure, save
from seqtrain.analysis.profile import Grid, Profile
from seqtrain.analysis.profile_memory import KINDS, OPTIMIZER, WEIGHTS, MemoryProfile
from seqtrain.analysis.timing import ALONE, TRAINING

TIMES, CROSSOVER, MEMORY = "times.png", "crossover.png", "memory.png"
CONSTANT_IN_T = (WEIGHTS, OPTIMIZER)
AXES = {"T": "sequence length T (tokens)", "d": "width d"}


def draw(profiles: Sequence[Profile], memory: Sequence[MemoryProfile], grid: Grid, folder: Path) -> tuple[str, ...]:
    """Writes the pictures into a folder; gives their names."""
    _draw_times(profiles, grid, folder / TIMES)
    _draw_costs(profiles, folder / CROSSOVER)
    _draw_memory(memory, grid, folder / MEMORY)
    return TIMES, CROSSOVER, MEMORY


def _draw_times(profiles: Sequence[Profile], grid: Grid, path: Path) -> None:
    """A row a model, a column an axis: the time of each kind of work, its fit, and theory's slope dashed."""
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
                    label += f": {axis}^{fitted.law.exponent:.2f}"
                axes.plot(across, values, "o-", color=color, label=label, markersize=4)
                if fitted.theory is not None and fitted.law is not None:
                    # Through the last point, where the work weighs most beside what a call costs.
                    theory = [values[-1] * (size / across[-1]) ** fitted.theory for size in across]
                    axes.plot(across, theory, "--", color=color, linewidth=1, label=f"theory: {axis}^{fitted.theory:g}")
            axes.set(xscale="log", yscale="log", xlabel=AXES[axis], ylabel="ms, forward", title=profile.name)
            axes.set_xticks(across, [str(size) for size in across])
            # Ticks of a logarithmic axis stand at powers of ten, and no size does.
            axes.minorticks_off()
            axes.legend(fontsize=7)
    save(figure, path)


def _draw_costs(profiles: Sequence[Profile], path: Path) -> None:
    """Time and counted operations of a training step's token against the length, all models in one picture."""
    figure = new_figure(9.6, 3.6)
    left, right = figure.subplots(1, 2)
    for color, profile in zip(COLORS, profiles, strict=False):
        lengths = [row["length"] for row in profile.counted]
        left.plot(lengths, [row["flops"] for row in profile.counted], "o-", color=color, label=profile.name)
        for kind, style in ((ALONE, ":"), (TRAINING, "-")):
            # Those along the widths are read at another length.
            found = [(size.length, each[kind]) for size, each in profile.seconds.items() if kind in each]
            found = [(length, seconds) for length, seconds in found if length in lengths]
            if not found:  # the model does not attend
                continue
            # Both lines of a model have its colour.
            label = profile.name if kind == TRAINING else f"{profile.name}: {ALONE}, one layer"
            across, seconds = zip(*found, strict=True)
            right.plot(across, [1000 * value for value in seconds], style, marker="o", color=color, label=label)
    left.set(xscale="log", yscale="log", xlabel=AXES["T"], ylabel="operations a token, forward", title="Counted")
    right.set(xscale="log", yscale="log", xlabel=AXES["T"], ylabel="ms a training pass", title="Measured")
    lengths = [row["length"] for row in profiles[0].counted]
    for axes in (left, right):
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.minorticks_off()
        axes.legend(fontsize=7)
    save(figure, path)


def _draw_memory(profiles: Sequence[MemoryProfile], grid: Grid, path: Path) -> None:
    """A row a model, a column an axis: the bytes of each kind, their fit, and theory's slope dashed."""
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
                    label = f"{KINDS[kind]}: {axis}^{fitted.law.exponent:.2f}"
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
