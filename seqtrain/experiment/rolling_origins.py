"""Rolling origin: forecast from the last origins of a split, each from all history before it, without refitting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.sources.base import Split
from seqtrain.errors import NonFinite, UserError
from seqtrain.experiment.data import open_with_data
from seqtrain.tasks.baselines.forecasts import Errors, Forecaster, add_errors

if TYPE_CHECKING:
    from seqtrain.data.batching.values import Windows
    from seqtrain.data.preprocess import Preprocessor, Rows
    from seqtrain.inference.opened import Opened
    from seqtrain.models.base import SequenceModel
    from seqtrain.tasks.base import Say
    from seqtrain.training.splits import Data

MODEL = "model"


@runtime_checkable
class ForecastsRows(Protocol):
    """A task that continues series from any row."""

    rows_ahead: int

    def windows(self, rows: Rows, preprocessor: Preprocessor) -> Windows:
        """Return the windows of a split, one for each origin."""
        ...

    def ahead(
        self, model: SequenceModel, features: Float[np.ndarray, "T F"], k2: int
    ) -> dict[str, Float[np.ndarray, "H C"]]:
        """Predict the scaled values after the end of a series."""
        ...

    def forecasters(self, train: Rows, windows: Windows, preprocessor: Preprocessor, say: Say) -> dict[str, Forecaster]:
        """Return the baselines, fitted to train."""
        ...


@dataclass
class RollingOrigins:
    """Metrics of the model and of baselines at the last origins of a split."""

    opened: Opened
    data: Data
    by_origin: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)  # by origin and forecaster
    whole: dict[str, dict[str, float]] = field(default_factory=dict)  # over all of these origins

    def rows(self) -> Iterator[tuple[str, Mapping[str, dict[str, float]]]]:
        """Yield the name of each origin with the metrics of each forecaster, then those over all origins."""
        yield from self.by_origin.items()
        yield "all", self.whole


def roll(path: str, split: Split, checkpoint: str, count: int, say: Say) -> RollingOrigins:
    """Measure a run and its baselines at the last `count` origins of each series of a split.

    Args:
        path: The run's directory.
        split: "train", "validation" or "test".
        checkpoint: "best" or "last".
        count: Number of origins; consecutive rows, the last with its whole horizon in the split.
        say: Receives messages on baselines.

    Raises:
        UserError: If the run's task does not forecast, or no series of the split has that many origins.
    """
    opened, data = open_with_data(path, split, checkpoint, with_train=True)
    task, rows, preprocessor = opened.task, data.rows[split], opened.preprocessor
    if not isinstance(task, ForecastsRows):
        raise UserError(f"--origins: task={opened.task.name()} does not forecast series; leave it out")
    windows, scaling = task.windows(rows, preprocessor), preprocessor.series
    assert scaling is not None
    most = int(np.diff(windows.begins).max())
    if count > most:
        raise UserError(
            f"--origins {count}: the {split} split has {most:,} origins with data.max_length={windows.history} rows "
            f"before them and task.horizon={windows.targets.horizon} rows of the split after them; ask for fewer"
        )
    reading, naive = windows.reading, np.array(scaling.naive)
    forecasters = task.forecasters(data.rows["train"], windows, preprocessor, say)
    found = RollingOrigins(opened, data)
    whole = {name: Errors(naive, reading.std) for name in (MODEL, *forecasters)}
    for back in range(count, 0, -1):
        # Shorter series have fewer origins: they take part from their first one on.
        index = windows.begins[1:][np.diff(windows.begins) >= back] - back
        firsts = windows.rows(index)
        series = reading.series_of(firsts)
        ahead = []
        for first, begin in zip(firsts.tolist(), reading.series.offsets[series].tolist(), strict=True):
            read = np.arange(begin, first + task.rows_ahead)
            ahead.append(task.ahead(opened.model, reading.features(read[None])[0], data.tbptt.k2)["forecast"])
        forecast = np.stack(ahead)
        if not np.isfinite(forecast).all():
            raise NonFinite("a forecast contains nan or inf: a weight is nan or inf, or the model overflows")
        true = windows.targets.of(firsts[:, None])[:, 0].astype(np.float64)
        here = {name: Errors(naive, reading.std) for name in whole}
        for errors in (here[MODEL], whole[MODEL]):
            errors.add(forecast, true, series)
        for name, forecaster in forecasters.items():
            add_errors(forecaster, windows, index, [here[name], whole[name]])
        found.by_origin[_name(windows, firsts, back)] = {name: errors.metrics for name, errors in here.items()}
    found.whole = {name: errors.metrics for name, errors in whole.items()}
    return found


def _name(windows: Windows, firsts: Int[np.ndarray, " n"], back: int) -> str:
    """Return the time of an origin if all series share it, else its distance from the last one."""
    series = windows.reading.series
    times = np.unique(series.times[firsts]) if series.times is not None else ()
    if len(times) == 1 and series.clock is not None:
        return series.clock.text(times[0])
    return f"{1 - back}"
