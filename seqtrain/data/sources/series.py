"""Series of real values: one or many in a file, cut into splits by time."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from seqtrain.data.cache import Store
from seqtrain.data.sources.base import Source, Split, check_fractions, no_split
from seqtrain.data.values import store
from seqtrain.data.values.scaling import PERIODS, Missing, TimeFeature
from seqtrain.data.values.series import Series, SeriesSplit, bounds, without_gaps
from seqtrain.data.values.tables import Format, Layout, layout
from seqtrain.errors import UserError

Channels = Literal["together", "apart"]
CACHE_FORMAT = 3


@dataclass(kw_only=True, eq=False)
class SeriesSource(Source):
    """Series of real values in a fixed order; each is cut into splits by time.

    Attributes:
        channels: `together`: a model reads and predicts all columns of a series at once; `apart`: each column is a
            series of its own, and one model reads them all.
        missing: `mask`: where train has missing values, the model reads which values are missing and for how many
            steps; `mean`: the mean of train replaces them.
        time_features: Places in the day, the week or the year that the model reads beside the values; `auto`: those
            whose cycle is in train twice or more.
        season: Steps of a season, for baselines and MASE; None: from the autocorrelation of train.
        rows: Numbers of rows of each series in train, validation and test; None: from the fractions.
        validation_fraction: Fraction of each series that is validation, before test.
        test_fraction: Fraction at the end of each series that is test.
    """

    document = "a series"
    fields = ("values",)
    channels: Channels = "together"
    missing: Missing = "mask"
    time_features: Sequence[TimeFeature] | Literal["auto"] | None = "auto"
    season: int | None = None
    rows: Sequence[int] | None = None  # type: ignore[assignment]  # it has none of text
    validation_fraction: float = 0.2
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_fractions(self.validation_fraction, self.test_fraction)
        # By `type`, since true is an int for Python, and a command line may say so.
        rows = self.rows
        if rows is not None and (len(rows) != 3 or any(type(count) is not int or count < 0 for count in rows)):
            raise UserError(f"data.rows={list(rows)}: expected three numbers of rows, of train, validation and test")
        for feature in () if self.time_features == "auto" else self.time_features or ():
            if feature not in PERIODS:
                raise UserError(f"data.time_features: {feature}: expected some of {', '.join(PERIODS)}")

    @abstractmethod
    def read(self) -> Series:
        """Return all series, each in the order of time."""

    @cached_property
    def series(self) -> Series:
        """All series as models read them."""
        found = self.read()
        return found.apart() if self.channels == "apart" else found

    @cached_property
    def remarks(self) -> list[str]:
        """Lines that are logged about the series before training."""
        return []

    def split(self, split: Split) -> SeriesSplit:
        """Return the rows of a split; raise UserError if there is no such split, or a series is too short for it."""
        if not self.has(split) and self.rows is not None:
            rows = ",".join(map(str, self.rows))
            raise UserError(f"data.rows=[{rows}]: leaves no row for {split}; give it some")
        if not self.has(split):
            raise no_split(split)
        found = bounds(self.series, self.rows, self.validation_fraction, self.test_fraction)
        begin, end = found[split]
        return SeriesSplit(self.series, begin, end)

    def documents(self, split: Split) -> Iterator[str]:
        raise UserError("data: holds series of values, not text; use task=forecast, or other data")

    def has(self, split: Split) -> bool:
        shares = {"train": 1.0, "validation": self.validation_fraction, "test": self.test_fraction}
        if self.rows is not None:
            shares = dict(zip(shares, self.rows, strict=True))
        return shares[split] > 0

    def idle(self) -> dict[str, str]:
        if self.rows is None:
            return {}
        reason = "data.rows says how many rows each split has"
        return {"validation_fraction": reason, "test_fraction": reason}


@dataclass(kw_only=True, eq=False)
class TableSeries(SeriesSource):
    """One table: a column of time, columns of values, and optionally a column that names series.

    Attributes:
        path: Path of the file; its rows are in the order of time, those of a series one after another.
        decimal: Decimal separator of numbers.
        columns: Columns of values; None: all that have no other use.
        known_columns: Columns that are known ahead of time, such as prices: read, but not predicted.
        time_column: Column of time; None: the one that holds dates, or is called date, time or the like, if there is
            one.
        time_format: Format for strptime, where times are not ISO 8601.
        id_column: Column that names the series of a row; None: all rows are of one series.
    """

    path: str
    decimal: Literal[".", ","] = "."
    columns: Sequence[str] | None = None
    known_columns: Sequence[str] | None = None
    time_column: str | None = None
    time_format: str | None = None
    id_column: str | None = None

    def check(self) -> None:
        # Reads all rows: otherwise a text in the last row would raise after minutes of preparation.
        for split in ("train", "validation"):
            self.split(split)

    @cached_property
    @abstractmethod
    def _layout(self) -> Layout:
        """Columns of the table and their uses."""

    def _layout_of(self, path: Path, format: Format) -> Layout:
        return layout(
            path,
            format=format,
            decimal=self.decimal,
            values=self.columns,
            known=self.known_columns or (),
            time=self.time_column,
            time_format=self.time_format,
            id=self.id_column,
        )

    def describe(self) -> dict[str, Any]:
        found = self._layout
        named = {"columns": list(found.values), "known_columns": list(found.known), "time_column": found.time}
        return {"source": "series", "paths": [self.path], "series": len(self.series.names), **named, "id": found.id}

    def read(self) -> Series:
        table = self._layout
        with open(table.path, "rb") as file:
            # By content and not by date: a file that was copied anew is not parsed again.
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        key = f"{CACHE_FORMAT} {content} {table.format} {table.delimiter} {table.decimal} {table.names} {table.values} "
        key += f"{table.time} {table.time_format} {table.id}"
        found = Store().entry("series", key, partial(store.write, table), partial(store.read, table))
        found, remarks = without_gaps(found)
        self.remarks.extend(remarks)
        for name in table.left_out:
            self.remarks.append(f"data: column {name!r} counts the rows and is left out")
        return found


@dataclass(kw_only=True, eq=False)
class SeriesFile(TableSeries):
    """One file of csv, tsv, parquet or jsonl; `format` is found by the file's name if it is `auto`."""

    format: Format = "auto"

    @cached_property
    def _layout(self) -> Layout:
        return self._layout_of(Path(self.path), self.format)
