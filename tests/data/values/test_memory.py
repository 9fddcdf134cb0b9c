"""Memory does not grow with the rows of a series: tables stay files, and are read by blocks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.batching.values import Windows
from seqtrain.data.values import scaling
from seqtrain.data.values.reading import Reading
from seqtrain.data.values.scaling import Scaling
from seqtrain.data.values.series import Clock, Series, SeriesSplit, without_gaps
from seqtrain.tasks.baselines.autoregression import Autoregression
from seqtrain.tasks.baselines.forecasts import ScaledBlocks

ROWS = 200_000
TIMES_AS_MANY = 8
MAX_RATIO = 1.2  # of the peaks of both, where nothing grows
MAX_BYTES_PER_WINDOW = 32  # of a plan: an order of windows in int64, and what it is made of


def of(rows: int, folder: Path) -> Series:
    """A series in a file that is mapped into memory, as the cache has it."""
    path = folder / f"{rows}.bin"
    np.random.default_rng(0).normal(size=rows).tofile(path)
    values: np.ndarray = np.memmap(path, dtype=np.float64, mode="r")
    times: np.ndarray = np.memmap(folder / f"{rows}.times", dtype=np.int64, mode="w+", shape=(rows,))
    times[:] = 3600 * np.arange(rows)
    known, offsets = np.zeros((rows, 0)), np.array([0, rows])
    return Series(values[:, None], known, times, offsets, ("",), ("a",), clock=Clock(None, "%Y-%m-%d"))


def whole(series: Series) -> SeriesSplit:
    return SeriesSplit(series, series.offsets[:-1], series.offsets[1:])


def fitted(series: Series) -> Scaling:
    return scaling.fit(whole(series), missing="mask", features=(), season=24)


def least_squares(reading: Reading) -> Autoregression:
    split = whole(reading.series)
    return Autoregression.fit(ScaledBlocks(reading, split.begin, split.end), 4, 2)


def peak(work: Callable[[], object]) -> int:
    """Bytes that were held at most while something was done."""
    tracemalloc.start()
    work()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Series, Series]:
    """A short series, and a long one."""
    folder = tmp_path_factory.mktemp("series")
    return of(ROWS, folder), of(TIMES_AS_MANY * ROWS, folder)


def test_a_longer_series_takes_no_more_memory(both: tuple[Series, Series]) -> None:
    works: dict[str, Callable[[Series], object]] = {
        "gaps": without_gaps,
        "scaling": fitted,
        "least squares": lambda series: least_squares(Reading(series, fitted(series))),
    }
    for name, work in works.items():
        short, long = (peak(lambda series=series, work=work: work(series)) for series in both)
        assert long < MAX_RATIO * short, name


def test_windows_cost_an_order_of_them_and_nothing_else(both: tuple[Series, Series]) -> None:
    _, long = both
    reading = Reading(long, fitted(long))

    def plan() -> ExamplePlan:
        windows = Windows(whole(long), reading, history=96, horizon=24)
        made = ExamplePlan(lengths=windows.lengths, batch_tokens=None, batch_size=32, seed=0, shuffle=True)
        made.chunk(0, 0)
        return made

    assert peak(plan) < MAX_BYTES_PER_WINDOW * TIMES_AS_MANY * ROWS
