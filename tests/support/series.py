"""Series for tests: made of a seed, written to files, and read as a model reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from seqtrain.data.preprocess import Preprocessor, Rows, prepare_series
from seqtrain.data.sources.series import SeriesFile, SeriesSource
from seqtrain.data.values.series import Clock, Series
from seqtrain.tasks.baselines.autoregression import Block

LENGTHS = (90, 61, 75)
"""Rows of the series, no two alike."""


def numbers(*, columns: int = 2, lengths: tuple[int, ...] = LENGTHS, missing: float = 0.2, seed: int = 0) -> np.ndarray:
    """Values of a seed, some of them missing; no column lacks one in train, whatever the seed."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(sum(lengths), columns)) * 3 + 7
    values[generator.random(values.shape) < missing] = np.nan
    return values


class Held(SeriesSource):
    """Series that are held in memory: two columns, one known ahead, of every hour from the first of 2024."""

    def __init__(self, values: Float[np.ndarray, "n C"], *, lengths: tuple[int, ...] = LENGTHS, **options: Any) -> None:
        given = {"channels": "together", "missing": "mask", "time_features": ["hour"], "season": None, "rows": None}
        super().__init__(**{**given, "validation_fraction": 0.2, "test_fraction": 0.2, **options})
        self.values = values
        self.lengths = lengths

    def check(self) -> None:
        self.split("validation")

    def describe(self) -> dict[str, Any]:
        return {"source": "held"}

    def read(self) -> Series:
        count = len(self.values)
        offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        hours = np.arange(count) - np.repeat(offsets[:-1], self.lengths)
        return Series(
            values=self.values,
            known=np.cos(np.arange(count))[:, None],
            times=1704067200 + 3600 * hours,
            offsets=offsets,
            names=tuple(f"s{number}" for number in range(len(self.lengths))),
            columns=tuple("abcdefgh"[: self.values.shape[1]]),
            known_columns=("price",),
            clock=Clock(None, "%Y-%m-%d"),
        )


def prepared(source: SeriesSource) -> tuple[Preprocessor, dict[Any, Rows]]:
    """The scaling of train, and the rows of every split."""
    return prepare_series(source, ("train", "validation", "test"), preprocessor=None, say=lambda line: None)


def table(folder: Path, content: str | bytes, *, name: str = "a.csv", **options: Any) -> SeriesFile:
    """The source that a file with this content is."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return SeriesFile(path=str(path), **options)


def hours(count: int) -> list[str]:
    """Times, an hour apart."""
    return [
        str(np.datetime64("2024-01-01T00:00:00") + np.timedelta64(hour, "h")).replace("T", " ") for hour in range(count)
    ]


def csv(*rows: str, header: str = "date,a,b") -> str:
    """A table of 60 hours with these rows, as they are written, in the place of those from the 31st on."""
    lines = [f"{time},{number % 7}.5,{-number}" for number, time in enumerate(hours(60))]
    lines[30 : 30 + len(rows)] = rows
    return "\n".join([header, *lines]) + "\n"


def blocks_of(
    values: Float[np.ndarray, "T C"], boundaries: Iterable[int] | None = None, *, rows: int = 65_536
) -> list[Block]:
    """Views of an array, which may be a file mapped into memory, as blocks.

    Args:
        values: The rows of all series, one series behind another.
        boundaries: Where each series begins, and the end of the last one; None where all rows are one series.
        rows: At most so many rows a block.
    """
    marks = [0, len(values)] if boundaries is None else [int(mark) for mark in boundaries]
    blocks: list[Block] = []
    for number in range(len(marks) - 1):
        for begin in range(marks[number], marks[number + 1], rows):
            blocks.append((number, values[begin : min(begin + rows, marks[number + 1])]))
    return blocks
