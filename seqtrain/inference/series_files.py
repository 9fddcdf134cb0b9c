"""Reading of a file's series for prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqtrain.data.sources.series import HoldsLabels
from seqtrain.data.values.reading import Reading
from seqtrain.errors import UserError, first_few
from seqtrain.tasks.predictors import NamedSeries
from seqtrain.training.data import make_source

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened


def read_series(opened: Opened, path: Path, called: str) -> list[NamedSeries]:
    """Read the series of a file, in the format of the run's training data; labels are ignored.

    Args:
        opened: A run that predicts on whole series.
        path: The file.
        called: The file's name in messages: `--input more.ts`.

    Raises:
        UserError: The file cannot be read, or has other channels than the run's data.
    """
    scaling = opened.preprocessor.series
    source = make_source(opened.config)
    assert scaling is not None
    assert isinstance(source, HoldsLabels)
    try:
        series = source.series_of(path, scaling.columns)
    except UserError as fault:
        # In messages, replace data.path by the name of the file here.
        raise UserError(*(line.replace(f"data.path={path}", called) for line in fault.lines)) from None
    if series.columns != scaling.columns:
        raise UserError(
            f"{called}: its channels are {first_few(series.columns)}, but the run was trained on "
            f"{first_few(scaling.columns)}; give the same channels"
        )
    # Use the precision of training: with another, the last digits would differ from those of `evaluate`.
    reading = Reading(series, scaling, np.float64 if opened.config.trainer.precision == "64-true" else np.float32)
    found = []
    for name, begin, end in zip(series.names, series.offsets[:-1], series.offsets[1:], strict=True):
        found.append(NamedSeries(name, reading.observed(np.arange(begin, end)[None])[0]))
    return found
