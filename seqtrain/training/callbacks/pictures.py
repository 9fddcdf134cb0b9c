"""Pictures of a run, handed to its loggers: one that cannot be drawn costs a line, never the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytorch_lightning import Trainer

from seqtrain.training.loggers.base import RunLogger, say


def drawn(what: str, draw: Callable[[], Path | None]) -> Path | None:
    """The PNG file that `draw` writes, if it writes one; `what`: the picture in words."""
    try:
        return draw()
    except Exception as error:  # whatever matplotlib, or the data, does
        say(f"{what} could not be drawn: {error}")
        return None


def log_picture(trainer: Trainer, name: str, what: str, draw: Callable[[], Path | None]) -> None:
    """Logs the PNG file that `draw` writes under `name`, if it writes one; `what`: the picture in words."""
    path = drawn(what, draw)
    if path is None:
        return
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_image(name, path, trainer.global_step)
