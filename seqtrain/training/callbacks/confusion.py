"""The confusion matrix of a classification as a picture: which label is taken for which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from pytorch_lightning import Callback, Trainer

from seqtrain.files.atomic import atomic
from seqtrain.runs.directory import Run
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import RunLogger, say

MOST = 40  # labels that a picture can hold


class ConfusionMatrix(Callback):
    """Draws plots/confusion.png at each validation of a task that counts true and predicted labels."""

    def __init__(self, *, run: Run) -> None:
        self.run = run

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if "confusion" not in pl_module.totals:
            return
        table = np.array(pl_module.totals["confusion"][0], dtype=np.int64)
        labels: tuple[str, ...] = pl_module.task.labels  # type: ignore[assignment]
        path = self.run.plots / "confusion.png"
        try:
            drawn = plot_confusion(table, labels, path)
        except Exception as error:  # a picture must not fail a run
            say(f"the confusion matrix could not be drawn: {error}")
            return
        for logger in trainer.loggers if drawn else []:
            if isinstance(logger, RunLogger):
                logger.log_image("confusion", path, trainer.global_step)


def plot_confusion(table: np.ndarray, labels: tuple[str, ...], path: Path) -> bool:
    """Draws counts (true, predicted), coloured by their share of the true label; False where they are too many."""
    if len(labels) > MOST:
        return False
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    size = 2.5 + 0.6 * len(labels)
    figure = Figure(figsize=(size + 1, size), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="cividis", vmin=0, vmax=1)
    names = [label if len(label) <= 16 else f"{label[:15]}…" for label in labels]
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    for (row, column), count in np.ndenumerate(table):
        shade = "black" if shares[row, column] > 0.5 else "white"
        axes.text(
            column, row, f"{count:,}\n{shares[row, column]:.0%}", ha="center", va="center", color=shade, fontsize=8
        )
    figure.colorbar(image, ax=axes, label="share of the true label")
    with atomic(path) as file:
        figure.savefig(file, format="png")
    return True
