"""Learning curve of a run as a plot: loss or metric against tokens read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from pytorch_lightning import Callback, Trainer

from seqtrain.files.atomic import atomic
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Task
from seqtrain.training.accumulators import LOSS
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import log_picture

Record = dict[str, Any]

SMALL_PANELS = {"lr": "learning rate", "tokens_per_second": "tokens a second", "gradient_norm": "gradient norm"}
SMALL_PANELS |= {"clipped": "share of updates clipped"}
TRAIN, VALIDATION, GREY = "#56B4E9", "#D55E00", "#555555"  # safe for colour-blind readers (Okabe & Ito 2008)
LARGE = EngFormatter(sep="")  # 20k, 1.5M


class Curves(Callback):
    """Draw plots/learning_curve.png when training ends, also after an error, and pass it to the loggers."""

    def __init__(self, *, run: Run) -> None:
        self.run = run

    def on_fit_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self._draw(trainer, pl_module.task)

    def on_exception(self, trainer: Trainer, pl_module: Learner, exception: BaseException) -> None:  # type: ignore[override]
        if trainer.state.fn == "fit":
            self._draw(trainer, pl_module.task)

    def _draw(self, trainer: Trainer, task: Task) -> None:
        def draw() -> Path | None:
            path = self.run.plots / "learning_curve.png"
            return path if plot_curves(self.run.metrics(), path, task, title=self.run.path.name) else None

        log_picture(trainer, "learning_curve", "the learning curve", draw)


def plot_curves(records: list[Record], path: Path, task: Task, *, title: str = "") -> bool:
    """Draw the records of `Run.metrics` to the PNG file `path`. Return False if there is nothing to draw.

    The metric is the one by which the task's runs are compared, or the loss if training does not measure it.

    Args:
        records: Records of metrics.jsonl.
        path: PNG file to write.
        task: Task whose metric is drawn.
        title: Title of the figure.
    """
    measure = task.comparison()
    if not _points(records, f"train/{measure}"):
        measure = LOSS
    if not _points(records, f"train/{measure}") and not _points(records, f"validation/{measure}"):
        return False
    recorded = [name for name in SMALL_PANELS if _points(records, name)]
    columns = 1 + min(len(recorded), 1)
    figure = Figure(figsize=(10, 5.2), dpi=140, layout="constrained")
    grid = figure.add_gridspec(max(len(recorded), 1), columns, width_ratios=[2.4, 1][:columns])
    _draw_metric(figure.add_subplot(grid[:, 0]), records, task, measure)
    for row, name in enumerate(recorded):
        _draw_small(figure.add_subplot(grid[row, 1]), _points(records, name), name)
    figure.suptitle(title, fontsize=11)
    with atomic(path) as file:
        figure.savefig(file, format="png")
    return True


def _label(task: Task, name: str) -> str:
    """Return the title of a panel, such as `loss (nats a token)`."""
    metric, words = task.metric(name), name.replace("_", " ")
    if metric is None:
        return words
    if metric.unit.lower() == words:  # for BLEU, which is its own unit
        return metric.unit
    return f"{words} ({metric.unit})"


def _draw_metric(axes: Axes, records: list[Record], task: Task, measure: str) -> None:
    """Draw the large panel: train and validation, with the best validation marked."""
    train, validation = _points(records, f"train/{measure}"), _points(records, f"validation/{measure}")
    if train:
        _line(axes, train, "train", TRAIN, dots=1)
    if validation:
        _line(axes, validation, "validation", VALIDATION, dots=60)
        metric = task.metric(measure)
        best_of = max if metric is not None and metric.better == "max" else min
        best = best_of(_values(validation))
        axes.axhline(best, color=VALIDATION, linewidth=0.8, linestyle=":")
        axes.text(0.01, best, f"best {best:.4g}", transform=axes.get_yaxis_transform(), color=VALIDATION, va="bottom")
    _style(axes, _label(task, measure), _values(train + validation))
    axes.set_xlabel("tokens read")
    axes.legend(frameon=False, loc="upper right")


def _draw_small(axes: Axes, points: list[tuple[float, float]], name: str) -> None:
    """Draw a small panel of another recorded quantity."""
    label, spread = SMALL_PANELS[name], [0.0]
    if name == "gradient_norm":  # the other scales begin at 0
        spread = _values(points)
    _line(axes, points, label, GREY, dots=1)
    _style(axes, label, spread)
    axes.tick_params(labelsize=8)
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)


def _line(axes: Axes, points: list[tuple[float, float]], label: str, color: str, *, dots: int) -> None:
    """Draw a curve, with a dot for each point if there are at most `dots`: a single point shows no line."""
    marker = "o" if len(points) <= dots else None
    axes.plot(*zip(*points, strict=True), color=color, label=label, linewidth=1.3, marker=marker, markersize=4)


def _style(axes: Axes, label: str, values: list[float]) -> None:
    """Set title, grid and scales. The y-axis is logarithmic if values are positive and span more than a factor of 2."""
    axes.set_title(label, loc="left", fontsize=10)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if min(values) > 0 and max(values) > 2 * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_short)


def _short(value: float, position: float) -> str:
    """Return a number as formatted on an axis: 0.05, 20k."""
    return LARGE(value) if abs(value) >= 1000 else f"{value:g}"


def _points(records: list[Record], name: str) -> list[tuple[float, float]]:
    """Return (tokens, value) of every record that has a finite value of this name."""
    points = []
    for record in records:
        if math.isfinite(record.get(name, math.nan)):
            points.append((record.get("tokens", 0), record[name]))
    return points


def _values(points: list[tuple[float, float]]) -> list[float]:
    return [value for _, value in points]
