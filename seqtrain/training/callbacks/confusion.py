"""Confusion matrix of a classification as a plot: true label against predicted label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from pytorch_lightning import Callback, Trainer

from seqtrain.files.atomic import atomic
from seqtrain.runs.directory import Run
from seqtrain.runs.shown import Confusion, write_confusion
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import log_picture

MAX_LABELS = 40  # that fit in a plot
MAX_LABEL_CHARACTERS = 16


class ConfusionMatrix(Callback):
    """Draw plots/confusion.png at each validation of a task that counts true and predicted labels.

    The counts of every validation are kept in the run; the plot shows the newest ones.
    """

    def __init__(self, *, run: Run) -> None:
        self.run = run

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if "confusion" not in pl_module.totals:
            return
        labels: tuple[str, ...] = pl_module.task.labels  # type: ignore[assignment]
        if len(labels) > MAX_LABELS:
            return
        table = np.array(pl_module.totals["confusion"][0], dtype=np.int64)
        confusion = Confusion(tuple(labels), tuple(map(tuple, table.tolist())))
        # Before plotting: `seqtrain sync` later sends loggers from this file what they do not receive now.
        write_confusion(self.run, trainer.global_step, confusion)
        path = self.run.plots / "confusion.png"
        log_picture(trainer, "confusion", "the confusion matrix", lambda: draw_confusion(confusion, path))


def draw_confusion(confusion: Confusion, path: Path) -> Path | None:
    """Draw the counts to the PNG file `path`. Return None if there are too many labels."""
    table = np.array(confusion.counts, dtype=np.int64).reshape(len(confusion.labels), -1)
    return path if plot_confusion(table, confusion.labels, path) else None


def plot_confusion(table: np.ndarray, labels: tuple[str, ...], path: Path) -> bool:
    """Draw counts (true, predicted), coloured by share of the true label. Return False if there are too many labels."""
    if len(labels) > MAX_LABELS:
        return False
    fractions = table / np.maximum(table.sum(1, keepdims=True), 1)  # avoids division by 0 for a label without examples
    size = 2.5 + 0.6 * len(labels)
    figure = Figure(figsize=(size + 1, size), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(fractions, cmap="cividis", vmin=0, vmax=1)
    names = [_shortened(label) for label in labels]
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    for (row, column), count in np.ndenumerate(table):
        fraction = fractions[row, column]
        shade = "black" if fraction > 0.5 else "white"  # the upper half of cividis is light
        axes.text(column, row, f"{count:,}\n{fraction:.0%}", ha="center", va="center", color=shade, fontsize=8)
    figure.colorbar(image, ax=axes, label="share of the true label")
    with atomic(path) as file:
        figure.savefig(file, format="png")
    return True


def _shortened(label: str) -> str:
    if len(label) <= MAX_LABEL_CHARACTERS:
        return label
    return f"{label[: MAX_LABEL_CHARACTERS - 1]}…"
