"""Series of real values: one or many in a file, cut into splits by time."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqtrain.data.cache import Store, durable, read_json
from seqtrain.data.sources.base import Source, Split, check_fractions, no_split
from seqtrain.data.values.scaling import PERIODS, Missing, TimeFeature
from seqtrain.data.values.series import Series, SeriesSplit, bounds
from seqtrain.data.values.tables import Format, Layout, layout, read_blocks
from seqtrain.errors import UserError

Channels = Literal["together", "apart"]
MAX_GROWTH = 2  # times the rows that a table may have once its gaps are filled
CACHE_FORMAT = 1


class SeriesSource(Source):
    """Series of real values in a fixed order; each is cut into splits by time."""

    document = "a series"
    fields = ("values",)

    def __init__(
        self,
        *,
        channels: Channels,
        missing: Missing,
        time_features: Sequence[TimeFeature] | None,
        season: int | None,
        rows: Sequence[int] | None,
        validation_fraction: float,
        test_fraction: float,
    ) -> None:
        """Holds how series are cut and read.

        Args:
            channels: `together`: a model reads and predicts all columns of a series at once; `apart`: each column is a
                series of its own, and one model reads them all.
            missing: `mask`: where train misses values, the model is told which ones and for how many steps; `mean`:
                the mean of train stands in their place.
            time_features: Places in the day, the week or the year that stand beside the values.
            season: Steps of a season, for baselines and MASE; None: by the time between two rows.
            rows: Of each series so many of train, validation and test; None: by fractions.
            validation_fraction: The share of each series that is validation, before test.
            test_fraction: The share at its end that is test.
        """
        check_fractions(validation_fraction, test_fraction)
        # By `type`, since true is an int for Python, and a command line may say so.
        if rows is not None and (len(rows) != 3 or any(type(count) is not int or count < 0 for count in rows)):
            raise UserError(f"data.rows={list(rows)}: expected three numbers of rows, of train, validation and test")
        for feature in time_features or ():
            if feature not in PERIODS:
                raise UserError(f"data.time_features: {feature}: expected some of {', '.join(PERIODS)}")
        if season is not None and season < 1:
            raise UserError(f"data.season={season}: expected a number of steps, 1 or more")
        self.channels = channels
        self.missing: Missing = missing
        self.time_features = tuple(time_features or ())
        self.season = season
        self.validation_fraction = validation_fraction
        self.test_fraction = test_fraction
        self.split_rows = None if rows is None else (rows[0], rows[1], rows[2])

    @abstractmethod
    def read(self) -> Series:
        """All series, each in the order of time."""

    @cached_property
    def series(self) -> Series:
        """All series as models read them."""
        found = self.read()
        return found.apart() if self.channels == "apart" else found

    @cached_property
    def remarks(self) -> list[str]:
        """What is said of the series before training, a line each."""
        return []

    def split(self, split: Split) -> SeriesSplit:
        """The rows of a split; UserError where it is not there, or a series is too short for it."""
        if not self.has(split):
            raise no_split(split)
        found = bounds(self.series, self.split_rows, self.validation_fraction, self.test_fraction)
        begin, end = found[split]
        return SeriesSplit(self.series, begin, end)

    def documents(self, split: Split) -> Iterator[str]:
        raise UserError("data: holds series of values, not text; use task=forecast, or other data")

    def has(self, split: Split) -> bool:
        shares = {"train": 1.0, "validation": self.validation_fraction, "test": self.test_fraction}
        if self.split_rows is not None:
            shares = dict(zip(shares, self.split_rows, strict=True))
        return shares[split] > 0

    def idle(self) -> dict[str, str]:
        if self.split_rows is None:
            return {}
        reason = "data.rows says how many rows each split has"
        return {"validation_fraction": reason, "test_fraction": reason}


@dataclass
class _Found:
    """What is known of the rows of a table while they are written."""

    offsets: list[int]
    names: list[str]
    num_rows: int = 0
    last_time: int | None = None
    has_dates: bool = False


class SeriesFile(SeriesSource):
    """One file of csv, tsv, parquet or jsonl: a column of time, columns of values, maybe one that names series."""

    def __init__(
        self,
        *,
        path: str,
        format: Format = "auto",
        decimal: Literal[".", ","] = ".",
        columns: Sequence[str] | None = None,
        known_columns: Sequence[str] | None = None,
        time_column: str | None = None,
        time_format: str | None = None,
        id_column: str | None = None,
        channels: Channels = "together",
        missing: Missing = "mask",
        time_features: Sequence[TimeFeature] | None = None,
        season: int | None = None,
        rows: Sequence[int] | None = None,
        validation_fraction: float = 0.2,
        test_fraction: float = 0.2,
    ) -> None:
        """Beside what all series have:

        Args:
            path: The file; its rows stand in the order of time, those of a series one after another.
            format: By the name of the file where it is `auto`.
            decimal: What stands before the decimals of a number.
            columns: Of values; None: all that are nothing else.
            known_columns: What is known ahead of time, such as prices: read, and not predicted.
            time_column: None: the one called date, time or the like, if there is one.
            time_format: As strptime has it, where times are not ISO 8601.
            id_column: Names the series that a row is of; None: all rows are of one.
        """
        super().__init__(
            channels=channels,
            missing=missing,
            time_features=time_features,
            season=season,
            rows=rows,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
        )
        self.path = Path(path)
        options = {"format": format, "decimal": decimal, "values": columns, "known": known_columns or ()}
        options |= {"time": time_column, "time_format": time_format, "id": id_column}
        self._options: dict[str, Any] = options

    def check(self) -> None:
        # All of it: a text among the numbers of the last row would be told after minutes of preparation.
        for split in ("train", "validation"):
            self.split(split)

    @cached_property
    def _layout(self) -> Layout:
        return layout(self.path, **self._options)

    def describe(self) -> dict[str, Any]:
        found = self._layout
        named = {"columns": found.values, "known_columns": found.known, "time_column": found.time, "id": found.id}
        return {"source": "series", "paths": [str(self.path)], "series": len(self.series.names), **_plain(named)}

    def read(self) -> Series:
        table = self._layout
        with open(self.path, "rb") as file:
            # By content and not by date: a file that was copied anew is not parsed again.
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        key = f"{CACHE_FORMAT} {content} {table.format} {table.delimiter} {table.decimal} {table.names} {table.values} "
        key += f"{table.time} {table.time_format} {table.id}"
        found, remarks = Store().entry("series", key, self._write, lambda folder: _read_folder(folder, table))
        self.remarks.extend(remarks)
        # Nothing may be put in its place: the model would be told a price that nobody knew.
        absent = np.flatnonzero(np.isnan(found.known).any(1))
        if len(absent):
            raise UserError(
                f"data.path={self.path}: row {absent[0] + 1:,} misses a value of data.known_columns; what is known "
                "ahead must be there"
            )
        return found

    def _write(self, folder: Path) -> None:
        """Writes the table as arrays, block by block."""
        table = self._layout
        found = _Found([0], [])
        with durable(folder / "numbers.bin") as numbers, durable(folder / "times.bin") as times:
            for block in read_blocks(table):
                self._check_order(table, found, block)
                numbers.write(np.ascontiguousarray(block.numbers).tobytes())
                if block.times is not None:
                    times.write(block.times.astype(np.int64).tobytes())
                found.num_rows += len(block.numbers)
                found.has_dates = block.is_date
        if not found.num_rows:
            raise UserError(f"data.path={self.path}: has no row below its header")
        if table.id is None:
            found.names = [""]
        found.offsets.append(found.num_rows)
        about = {"offsets": found.offsets, "names": found.names, "has_dates": found.has_dates}
        with durable(folder / "about.json") as file:
            file.write(json.dumps(about).encode())

    def _check_order(self, table: Layout, found: _Found, block: Any) -> None:
        """Where series begin in a block; UserError where times do not rise, or a series stands in two places."""
        count = len(block.numbers)
        starts = np.zeros(count, dtype=bool)
        if block.ids is not None:
            for row, name in enumerate(block.ids):
                # Blocks end in the midst of a series, so that its name goes on in the next one.
                if found.names and name == found.names[-1]:
                    continue
                if name in found.names:
                    raise UserError(
                        f"data.path={self.path}: rows of series {name} stand in two places; sort the file by "
                        f"{table.id} and then by time"
                    )
                starts[row] = True
                if found.num_rows + row:
                    found.offsets.append(found.num_rows + row)
                found.names.append(name)
        if block.times is None or not count:
            return
        before = np.concatenate([[found.last_time if found.last_time is not None else block.times[0] - 1], block.times])
        step = np.diff(before)
        # Time may go back from one series to the next.
        step[starts] = 1
        wrong = np.flatnonzero(step <= 0)
        if len(wrong):
            row = int(wrong[0])
            how = "repeats the time of the row before it" if step[row] == 0 else "is earlier than the row before it"
            raise UserError(
                f"data.path={self.path}: row {found.num_rows + row + 1:,} {how}; sort the rows by time, "
                "and keep one of each"
            )
        found.last_time = int(block.times[-1])


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as JSON has them."""
    return {name: list(each) if isinstance(each, tuple) else each for name, each in value.items()}


def _read_folder(folder: Path, table: Layout) -> tuple[Series, list[str]]:
    """The table in a folder of the cache; ValueError where it is damaged."""
    about = read_json(folder / "about.json")
    offsets = np.array(about["offsets"], dtype=np.int64)
    width = len(table.values) + len(table.known)
    numbers: np.ndarray = np.memmap(folder / "numbers.bin", dtype=np.float64, mode="r")
    # A cache that was copied or synced halfway has a short file.
    if len(numbers) != offsets[-1] * width:
        raise ValueError("damaged")
    numbers = numbers.reshape(-1, width)
    times = None
    if table.time is not None:
        times = np.memmap(folder / "times.bin", dtype=np.int64, mode="r")
        if len(times) != len(numbers):
            raise ValueError("damaged")
    count = len(table.values)
    series = Series(
        values=numbers[:, :count],
        known=numbers[:, count:],
        times=times,
        offsets=offsets,
        names=tuple(about["names"]),
        columns=table.values,
        known_columns=table.known,
        has_dates=about["has_dates"],
    )
    return _without_gaps(series)


def _without_gaps(series: Series) -> tuple[Series, list[str]]:
    """Series in which each step of time has a row; what was no row has missing values. What is said of it, too."""
    if series.times is None:
        return series, []
    steps = [
        np.diff(series.times[begin:end]) for begin, end in zip(series.offsets[:-1], series.offsets[1:], strict=True)
    ]
    every = np.concatenate(steps)
    if not len(every):
        return series, []
    step = int(every.min())
    # The usual case, which goes on from the mapped file and copies nothing into memory.
    if (every == step).all():
        return series, []
    where = "data: the time between rows"
    whole = int((every // step).sum()) + len(series.names)
    # Months and years have no even length; and a table that would be mostly gaps is none of even steps.
    if (every % step).any() or whole > MAX_GROWTH * len(series.times):
        return series, [f"{where} is uneven ({step:,} to {every.max():,}); each row is read as one step"]
    if series.known_columns:
        return series, [f"{where} has gaps, which are not filled, since data.known_columns are not known there"]
    rows = []
    begin = 0
    for part in steps:
        rows.append(begin + np.concatenate([[0], (part // step).cumsum()]))
        begin = int(rows[-1][-1]) + 1
    place = np.concatenate(rows)
    values = np.full((whole, series.values.shape[1]), np.nan)
    values[place] = series.values
    ends = np.array([each[-1] + 1 for each in rows])
    # Each series has its own gaps, so that all that come after it are moved.
    offsets = np.concatenate([[0], ends])
    first = np.repeat([series.times[begin] for begin in series.offsets[:-1]], np.diff(offsets))
    times = first + step * (np.arange(whole) - np.repeat(offsets[:-1], np.diff(offsets)))
    gaps = int((every > step).sum())
    filled = Series(
        values=values,
        known=np.zeros((whole, 0)),
        times=times,
        offsets=offsets,
        names=series.names,
        columns=series.columns,
        has_dates=series.has_dates,
    )
    return filled, [f"data: {gaps:,} gaps in time; the {whole - len(place):,} rows that are not there count as missing"]
