"""Finished runs as an analysis reads them: last weights, validation data, and the records of their training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.errors import RunFailed, UserError
from seqtrain.runs.directory import Run

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened
    from seqtrain.training.splits import Data

SPLIT = "validation"


def open_measured(path: Path, say: Callable[[str], None]) -> tuple[Opened, Data]:
    """Open a run with its last weights, and its validation data, read as in its training.

    The best weights are not used. They were chosen on this data, and would look better on it than they are.

    Raises:
        UserError: If the run cannot be opened, or its data has changed since.
    """
    from seqtrain.inference.opened import open_run
    from seqtrain.training.data import make_data

    opened = open_run(path, "last")
    summary = opened.run.summary
    data = make_data(opened.config, (SPLIT,), say, opened.preprocessor, summary.data)
    known = summary.hashes.get(SPLIT)
    if known is not None and known != data.rows[SPLIT].hash:
        raise UserError(f"{path}: the data has changed since it was trained; remove the run, or give another --out")
    return opened, data


def metric(path: Path, name: str) -> float:
    """Return a validation metric of the last weights, from the run's summary.

    Raises:
        RunFailed: If the training has left no such number.
    """
    metrics = Run.open(path).summary.metrics.get(SPLIT, {})
    value = metrics.get(name)
    if not isinstance(value, (int, float)):
        raise RunFailed(f"{path}: its training has left no {name} of {SPLIT}")
    return float(value)


def parameters(path: Path) -> int:
    """Return the number of trainable parameters of a run's model and task."""
    return int(Run.open(path).summary.parameters["total"])


def steps(path: Path) -> int:
    """Return the number of optimiser steps that a run was trained for."""
    return int(Run.open(path).summary.steps or 0)
