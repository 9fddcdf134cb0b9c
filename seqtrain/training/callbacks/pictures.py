"""Pictures of a run, handed to its loggers: one that cannot be drawn costs a line, never the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytorch_lightning import Trainer

from seqtrain.training.loggers.base import RunLogger, say


def log_picture(trainer: Trainer, name: str, path: Path, what: str, draw: Callable[[Path], bool]) -> None:
    """Has `draw` write the PNG file `path`, and logs it under `name` unless `draw` gives False; `what`: in words."""
    try:
        drawn = draw(path)
    except Exception as error:  # whatever matplotlib, or the data, does
        say(f"{what} could not be drawn: {error}")
        return
    if not drawn:
        return
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_image(name, path, trainer.global_step)
