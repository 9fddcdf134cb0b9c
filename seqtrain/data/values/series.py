"""Series of real values, concatenated in one table, and splits as ranges of its rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from seqtrain.errors import UserError

BLOCK_ROWS = 1 << 16  # that are looked at, or hashed, at a time


PARTS = re.compile(r"\d{4}(?:-(\d\d)(?:-(\d\d)(?:([T ])(\d\d)(?::(\d\d)(?::(\d\d)(?:[.,]\d+)?)?)?(.*))?)?)?")
"""Parts of a time in ISO 8601."""


@dataclass(frozen=True)
class Clock:
    """Format of a table's times; a run keeps it to check other tables, and to write predictions in the same format."""

    column: str | None  # None: generated data
    form: str  # format for strftime; empty: whole numbers
    offset: int | None = None  # seconds east of UTC, in the last row; None: times without a time zone

    @classmethod
    def of(cls, column: str | None, text: str) -> Clock:
        """Return the clock of a table with a time like `text`, in ISO 8601."""
        found = PARTS.fullmatch(text)
        if found is None:
            return cls(column, "%Y-%m-%d %H:%M:%S")
        month, day, between, hour, minute, second, zone = found.groups()
        parts = zip((month, day, hour, minute, second), ("-%m", "-%d", f"{between}%H", ":%M", ":%S"), strict=True)
        form = "%Y" + "".join(part for there, part in parts if there) + (zone or "")
        offset = datetime.fromisoformat(text).utcoffset() if zone else None
        return cls(column, form, None if offset is None else int(offset.total_seconds()))

    def local(self, times: Int[np.ndarray, "*n"]) -> np.ndarray:
        """Return times as values of an axis: dates in their time zone, or numbers."""
        return (times + (self.offset or 0)).astype("datetime64[s]") if self.form else times

    def text(self, time: int) -> str:
        """Return a time in the table's format."""
        if not self.form:
            return str(time)
        zone = UTC if self.offset is None else timezone(timedelta(seconds=self.offset))
        return datetime.fromtimestamp(time, zone).strftime(self.form)


@dataclass(frozen=True)
class Series:
    """Concatenated series; the arrays may be memory-mapped files.

    There are S series with C value columns, and K columns that are known ahead of time.
    """

    values: Float[np.ndarray, "n C"]  # float64; NaN where a value is missing
    known: Float[np.ndarray, "n K"]  # float64, none missing
    times: Int[np.ndarray, " n"] | None  # seconds since 1970, or steps; None if the rows have no times
    offsets: Int[np.ndarray, " S+1"]  # first row of each series, and the end of the last one
    names: tuple[str, ...]  # names of the series
    columns: tuple[str, ...]  # names of the value columns
    known_columns: tuple[str, ...] = ()
    column_of: Int[np.ndarray, "S C"] | None = None  # index into `columns` of each channel; None: channel c is column c
    clock: Clock | None = None  # format of `times`
    asked_after: int | None = None  # rows before the only value of each series; None: values in all rows

    @property
    def has_dates(self) -> bool:
        """True if times are dates, not steps."""
        return self.clock is not None and bool(self.clock.form)

    @property
    def lengths(self) -> Int[np.ndarray, " S"]:
        """Number of rows of each series."""
        return np.diff(self.offsets)

    @property
    def channels(self) -> Int[np.ndarray, "S C"]:
        """Indices (S, C) into `columns` of each channel of each series."""
        if self.column_of is not None:
            return self.column_of
        return np.tile(np.arange(len(self.columns)), (len(self.names), 1))

    def check_asked(self, history: int, horizon: int) -> None:
        """Raise UserError if these series have no values in the predicted rows.

        Args:
            history: Rows that a model reads before the first predicted value.
            horizon: Number of predicted rows.
        """
        if self.asked_after is None:
            return
        faults = []
        if horizon != 1:
            faults.append(f"task.horizon={horizon}: each series has one answer, its last value; use task.horizon=1")
        if history != self.asked_after:
            faults.append(
                f"data.max_length={history}: each series has {self.asked_after} steps before its answer; use "
                f"data.max_length={self.asked_after}"
            )
        if faults:
            raise UserError(*faults)

    def apart(self) -> Series:
        """Return the same values with each column of each series as a separate series of one channel."""
        count = len(self.columns)
        if count == 1:
            return self
        order, names, channels = [], [], []
        for series, (begin, end) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            for channel, column in enumerate(self.columns):
                order.append((begin, end, channel))
                names.append(f"{self.names[series]} {column}".strip())
                channels.append([channel])
        # Known columns and times are repeated for each channel, because each becomes a complete series.
        rows = np.concatenate([np.arange(begin, end) for begin, end, _ in order])
        return replace(
            self,
            values=np.concatenate([self.values[begin:end, channel] for begin, end, channel in order])[:, None],
            known=self.known[rows],
            times=None if self.times is None else self.times[rows],
            offsets=np.concatenate([[0], np.repeat(self.lengths, count).cumsum()]),
            names=tuple(names),
            column_of=np.array(channels),
        )


@dataclass(frozen=True)
class SeriesSplit:
    """Rows of a split: from `begin` to `end` in each series; earlier rows may be read as history."""

    series: Series
    begin: Int[np.ndarray, " S"]  # row indices of the whole table
    end: Int[np.ndarray, " S"]

    @property
    def num_series(self) -> int:
        """Number of series that have rows in the split."""
        return int((self.end > self.begin).sum())

    @property
    def num_rows(self) -> int:
        """Number of rows of the split, in all series."""
        return int((self.end - self.begin).sum())

    @property
    def has_a_value(self) -> bool:
        """True if any value is present; without any, an error of 0 would look like a perfect forecast."""
        for begin, end in zip(self.begin, self.end, strict=True):
            for first in range(begin, end, BLOCK_ROWS):  # usually the first block contains a value
                if not np.isnan(self.series.values[first : min(first + BLOCK_ROWS, end)]).all():
                    return True
        return False

    @property
    def hash(self) -> str:
        """Hash of its values and their times."""
        digest = hashlib.blake2b(repr((self.series.columns, self.series.known_columns)).encode(), digest_size=16)
        tables = [self.series.values, self.series.known]
        if self.series.times is not None:
            tables.append(self.series.times)
        for name, begin, end in zip(self.series.names, self.begin, self.end, strict=True):
            # With names and lengths: the same numbers with other boundaries are different series.
            digest.update(repr((name, int(end - begin))).encode())
            for table in tables:
                for first in range(begin, end, BLOCK_ROWS):
                    digest.update(np.ascontiguousarray(table[first : min(first + BLOCK_ROWS, end)]).data)
        return digest.hexdigest()


def bounds(
    series: Series, rows: Sequence[int] | None, validation: float, test: float
) -> dict[str, tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"]]]:
    """Return begin and end rows of each split in each series (S,): train first, then validation, then test.

    Args:
        series: All series; each is split separately.
        rows: Rows of each series in train, validation and test; rows left at the end are in no split. None: fractions.
        validation: Fraction of each series that is validation, if `rows` is None.
        test: Fraction of each series that is test, if `rows` is None.

    Raises:
        UserError: A series is too short.
    """
    begin, lengths = series.offsets[:-1], series.lengths
    if rows is None:
        sizes = [np.zeros_like(lengths), (lengths * validation).astype(np.int64), (lengths * test).astype(np.int64)]
        # Train takes the rest of the rounding, so that no row is lost.
        sizes[0] = lengths - sizes[1] - sizes[2]
    else:
        sizes = [np.full_like(lengths, count) for count in rows]
        short = np.flatnonzero(lengths < sum(rows))
        if len(short):
            raise UserError(
                f"data.rows=[{','.join(map(str, rows))}]: {_called(series, short[0])} has "
                f"{in_rows(int(lengths[short[0]]))}; use fewer"
            )
    # Test may be empty, because training does not read it.
    for name, size in zip(("train", "validation"), sizes, strict=False):
        empty = np.flatnonzero(size < 1)
        if len(empty):
            has = in_rows(int(lengths[empty[0]]))
            raise UserError(
                f"data: {_called(series, empty[0])} has {has}, which leaves none for {name}; "
                "use longer series, or change data.validation_fraction and data.test_fraction"
            )
    found = {}
    for name, size in zip(("train", "validation", "test"), sizes, strict=True):
        found[name] = (begin, begin + size)
        begin = begin + size
    return found


def in_rows(count: int) -> str:
    """Return a number of rows for a message."""
    return "1 row" if count == 1 else f"{count:,} rows"


def _called(series: Series, number: int) -> str:
    """Return the name of a series for a message."""
    return f"series {series.names[number]}" if series.names[number] else "the series"


MAX_GROWTH = 2  # maximum ratio of the rows of a table with filled gaps to its rows


def without_gaps(series: Series) -> tuple[Series, list[str]]:
    """Return series with one row per time step, and lines to log; added rows have missing values."""
    # The usual case: no copy of a memory-mapped file is needed.
    if series.times is None or _are_even(series.times, series.offsets):
        return series, []
    steps = [
        np.diff(series.times[begin:end]) for begin, end in zip(series.offsets[:-1], series.offsets[1:], strict=True)
    ]
    every = np.concatenate(steps)
    if not len(every):
        return series, []
    step = int(every.min())
    where = "data: the time between rows"
    whole = int((every // step).sum()) + len(series.names)
    # Months and years vary in length; and a table that would be mostly gaps does not have even steps.
    if (every % step).any() or whole > MAX_GROWTH * len(series.times):
        months = {months_of_a_step(series.times[begin:end]) for begin, end in pairwise(series.offsets)}
        words = f"uneven ({step:,} to {every.max():,}{' s' if series.has_dates else ''})"
        if series.has_dates and len(months) == 1 and None not in months:
            words = "one month" if months == {1} else f"{months.pop()} months"
        return series, [f"{where} is {words}; each row is read as one step"]
    if series.known_columns:
        return series, [f"{where} has gaps, which are not filled, because data.known_columns are unknown there"]
    rows = []
    begin = 0
    for part in steps:
        rows.append(begin + np.concatenate([[0], (part // step).cumsum()]))
        begin = int(rows[-1][-1]) + 1
    place = np.concatenate(rows)
    values = np.full((whole, series.values.shape[1]), np.nan)
    values[place] = series.values
    ends = np.array([each[-1] + 1 for each in rows])
    # Each series has its own gaps, which shift all later series.
    offsets = np.concatenate([[0], ends])
    first = np.repeat([series.times[begin] for begin in series.offsets[:-1]], np.diff(offsets))
    times = first + step * (np.arange(whole) - np.repeat(offsets[:-1], np.diff(offsets)))
    gaps = int((every > step).sum())
    filled = replace(series, values=values, known=np.zeros((whole, 0)), times=times, offsets=offsets)
    return filled, [f"data: {gaps:,} gaps in time; {whole - len(place):,} rows with missing values are inserted"]


def months_of_a_step(times: Int[np.ndarray, " n"]) -> int | None:
    """Return the months between rows if all steps have the same number of months but not of seconds; else None."""
    if len(times) < 3 or len(set(np.diff(times).tolist())) == 1:
        return None
    months = set(np.diff(times.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)).tolist())
    return months.pop() if len(months) == 1 and 0 not in months else None


def _are_even(times: Int[np.ndarray, " n"], offsets: Int[np.ndarray, " S+1"]) -> bool:
    """Return True if all time steps within the series have the same length."""
    known: int | None = None
    for begin, end in pairwise(offsets.tolist()):
        for first in range(begin, end - 1, BLOCK_ROWS):
            steps = np.diff(times[first : min(first + BLOCK_ROWS + 1, end)])
            if known is None:
                known = int(steps[0])
            if (steps != known).any():
                return False
    return True
