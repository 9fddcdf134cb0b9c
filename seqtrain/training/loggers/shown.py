"""Samples and pictures of a validation passed to loggers: the same during training and from `seqtrain sync`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from seqtrain.inference.forecast_plot import draw_small_fan
from seqtrain.runs.shown import Confusion, Samples
from seqtrain.training.loggers.base import RunLogger, say


def log_samples(run_logger: RunLogger, samples: Samples, step: int) -> None:
    """Log samples as text and, for loggers that have tables, by columns."""
    run_logger.log_text("samples", samples.text, step)
    if samples.table is not None:
        run_logger.log_table("samples_table", samples.table, step)


def log_fans(run_loggers: Sequence[RunLogger], samples: Samples, step: int) -> None:
    """Log a picture of each sample that is a forecast. It is drawn once for all loggers, if any of them shows it.

    A picture that cannot be drawn is reported in a line and does not stop the run.
    """
    if not samples.fans:
        return
    shown_by = [each for each in run_loggers if each.shows_images and not each.broken]
    if not shown_by:
        return
    with tempfile.TemporaryDirectory() as folder:
        for place, fan in enumerate(samples.fans, 1):
            if fan is None:
                continue
            picture = Path(folder) / f"sample_{place}.png"
            try:
                draw_small_fan(fan, picture)
            except Exception as error:  # any fault of matplotlib or the numbers
                say(f"the picture of sample {place} could not be drawn: {error}")
                continue
            for run_logger in shown_by:
                run_logger.log_image(f"sample_{place}", picture, step)


def log_confusion(run_logger: RunLogger, confusion: Confusion, picture: Path, step: int) -> None:
    """Log the confusion matrix as a picture and, for loggers that draw it themselves, as counts."""
    run_logger.log_image("confusion", picture, step)
    run_logger.log_confusion("confusion_matrix", confusion, step)
