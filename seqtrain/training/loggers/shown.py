"""What a validation shows, as it is handed to a logger: the same words live and by `seqtrain sync`."""

from __future__ import annotations

from pathlib import Path

from seqtrain.runs.shown import Confusion, Samples
from seqtrain.training.loggers.base import RunLogger


def log_samples(run_logger: RunLogger, samples: Samples, step: int) -> None:
    """Samples as text and, for loggers that have tables, by columns."""
    run_logger.log_text("samples", samples.text, step)
    if samples.table is not None:
        run_logger.log_table("samples_table", samples.table, step)


def log_confusion(run_logger: RunLogger, confusion: Confusion, picture: Path, step: int) -> None:
    """The confusion matrix as a picture and, for loggers that draw it themselves, as counts."""
    run_logger.log_image("confusion", picture, step)
    run_logger.log_confusion("confusion_matrix", confusion, step)
