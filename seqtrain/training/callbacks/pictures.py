"""Pictures of a run for its loggers. A failure to draw one is logged in a line and does not stop the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytorch_lightning import Trainer

from seqtrain.training.loggers.base import RunLogger, say


def log_picture(trainer: Trainer, name: str, what: str, draw: Callable[[], Path | None]) -> None:
    """Log the PNG file that `draw` writes, if any, as `name`.

    Args:
        trainer: Its run loggers get the picture.
        name: Name of the picture in the loggers.
        what: Noun for the message if drawing fails.
        draw: Writes the file and returns its path, or None.
    """
    try:
        path = draw()
    except Exception as error:  # any fault of matplotlib or the data
        say(f"{what} could not be drawn: {error}")
        return
    if path is None:
        return
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_image(name, path, trainer.global_step)
