"""Series of real values: one or many in a file, cut into splits by time."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.cache import Store
from seqtrain.data.sources.base import (
    NO_LABEL,
    OF_NUMBERS,
    OF_WORDS,
    SPLITS,
    LabelKind,
    Row,
    Source,
    Split,
    check_fractions,
    no_split,
    shuffled,
)
from seqtrain.data.values import store
from seqtrain.data.values.blocks import ABSENT, read_texts
from seqtrain.data.values.scaling import PERIODS, Missing, TimeFeature
from seqtrain.data.values.series import Series, SeriesSplit, bounds, without_gaps
from seqtrain.data.values.tables import Format, TableLayout, layout
from seqtrain.errors import UserError, first_few

Channels = Literal["together", "apart"]
CACHE_FORMAT = 4
GAPS_STAY = (
    "data: rows are left out of an even time; with labels each row is read as one step. To have the others read as "
    "missing values, write them with empty cells"
)
# What to do if the rows of a series have several labels, by the kind that the task reads.
_ONE_EACH = {
    "name": "write the same label in all rows, or use task=tag",
    "number": "write the same number in all rows, or use task=regress_steps",
}


@dataclass(kw_only=True, eq=False)
class SeriesSource(Source):
    """Series of real values in a fixed order; each is cut into splits by time.

    Attributes:
        channels: `together`: a model reads and predicts all columns of a series at once; `apart`: each column is a
            series of its own, and one model reads them all.
        missing: `mask`: where train has missing values, the model reads which values are missing and for how many
            steps; `mean`: the mean of train replaces them.
        time_features: Positions in the day, the week or the year that the model reads in addition to the values;
            `auto`: those whose cycle occurs at least twice in train.
        season: Steps per season, for baselines and MASE; None: from the autocorrelation of train.
        rows: Numbers of rows of each series in train, validation and test; None: from the fractions.
        validation_fraction: Fraction of each series that is validation, before test.
        test_fraction: Fraction of each series that is test, at its end.
    """

    document = "a series"
    fields = ("values",)
    channels: Channels = "together"
    missing: Missing = "mask"
    time_features: Sequence[TimeFeature] | Literal["auto"] | None = "auto"
    season: int | None = None
    rows: Sequence[int] | None = None  # type: ignore[assignment]  # replaces `Source.rows`: there is no text
    validation_fraction: float = 0.2
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_fractions(self.validation_fraction, self.test_fraction)
        # By `type`, because True is an int in Python, and a command line may contain `true`.
        rows = self.rows
        if rows is not None and (len(rows) != 3 or any(type(count) is not int or count < 0 for count in rows)):
            raise UserError(f"data.rows={list(rows)}: expected three row counts: train, validation and test")
        for feature in () if self.time_features == "auto" else self.time_features or ():
            if feature not in PERIODS:
                raise UserError(f"data.time_features: {feature}: expected some of {', '.join(PERIODS)}")

    def check(self) -> None:
        # Reads all rows: otherwise text in the last row would raise only after minutes of preparation.
        for split in ("train", "validation"):
            if split == "train" or self.has(split):
                self.split(split)

    @abstractmethod
    def read(self) -> Series:
        """Return all series, each in the order of time."""

    @cached_property
    def series(self) -> Series:
        """All series as the model reads them."""
        found = self.read()
        return found.apart() if self.channels == "apart" else found

    @cached_property
    def _owner(self) -> Int[np.ndarray, " S"] | None:
        """The split (S,) of each series if whole series are in one split; None if each is cut by time."""
        return None

    @cached_property
    def remarks(self) -> list[str]:
        """Lines about the series, logged before training."""
        return []

    def split(self, split: Split) -> SeriesSplit:
        """Return the rows of a split; raise UserError if the split is missing, or a series is too short for it."""
        if not self.has(split) and self.rows is not None:
            rows = ",".join(map(str, self.rows))
            raise UserError(f"data.rows=[{rows}]: has no rows for {split}; set its count above 0")
        if not self.has(split):
            raise no_split(split)
        if self._owner is not None:
            return series_in(self.series, self._owner, split)
        found = bounds(self.series, self.rows, self.validation_fraction, self.test_fraction)
        begin, end = found[split]
        return SeriesSplit(self.series, begin, end)

    def documents(self, split: Split) -> Iterator[str]:
        raise UserError("data: contains series of values, not text; use task=forecast, or other data")

    def has(self, split: Split) -> bool:
        shares = {"train": 1.0, "validation": self.validation_fraction, "test": self.test_fraction}
        if self.rows is not None:
            shares = dict(zip(shares, self.rows, strict=True))
        return shares[split] > 0

    def idle(self) -> dict[str, str]:
        if self.rows is None:
            return {}
        reason = "data.rows sets the number of rows of each split"
        return {"validation_fraction": reason, "test_fraction": reason}


@dataclass(kw_only=True, eq=False)
class TableSeries(SeriesSource):
    """One table: a column of time, columns of values, and optionally a column that names series.

    Attributes:
        path: Path of the file. The rows of a series are consecutive, in the order of time.
        decimal: Decimal separator of numbers.
        columns: Columns of values; None: all columns without another use.
        known_columns: Columns that are known ahead of time, such as prices: the model reads but does not predict them.
        time_column: Column of time; None: the column that contains dates, or is named date, time or similar, if any.
        time_format: Format for strptime, if times are not ISO 8601.
        id_column: Column with the name of each row's series; None: all rows belong to one series.
    """

    path: str
    decimal: Literal[".", ","] = "."
    columns: Sequence[str] | None = None
    known_columns: Sequence[str] | None = None
    time_column: str | None = None
    time_format: str | None = None
    id_column: str | None = None

    @cached_property
    @abstractmethod
    def _layout(self) -> TableLayout:
        """Columns of the table and their uses."""

    def _layout_of(self, path: Path, format: Format, label: str | None = None) -> TableLayout:
        return layout(
            path,
            format=format,
            decimal=self.decimal,
            values=self.columns,
            known=self.known_columns or (),
            time=self.time_column,
            time_format=self.time_format,
            id=self.id_column,
            label=label,
        )

    def _in_steps(self, series: Series) -> tuple[Series, list[str]]:
        """Return the series with one row per time step, and lines to log."""
        return without_gaps(series)

    def describe(self) -> dict[str, Any]:
        found = self._layout
        named = {"columns": list(found.values), "known_columns": list(found.known), "time_column": found.time}
        return {"source": "series", "paths": [self.path], "series": len(self.series.names), **named, "id": found.id}

    def read(self) -> Series:
        found, remarks = self._in_steps(self._as_written())
        self.remarks.extend(remarks)
        for name in self._layout.left_out:
            self.remarks.append(f"data: column {name!r} counts the rows and is left out")
        return found

    def _as_written(self) -> Series:
        """Return the rows of the file, without others in gaps of time."""
        table = self._layout
        with open(table.path, "rb") as file:
            # By content and not by date: a copy of the file is not parsed again.
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        key = f"{CACHE_FORMAT} {content} {table.format} {table.delimiter} {table.decimal} {table.names} {table.values} "
        key += f"{table.time} {table.time_format} {table.id}"
        return Store().entry("series", key, partial(store.write, table), partial(store.read, table))


@dataclass(kw_only=True, eq=False)
class SeriesFile(TableSeries):
    """One csv, tsv, parquet or jsonl file; series are cut into splits by time, but with labels stay whole.

    Attributes:
        format: Format of the file; `auto`: by its name.
        label_column: Column of labels. All rows of a series have the same label, unless the task predicts one per row.
    """

    format: Format = "auto"
    label_column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_column is None:
            return
        self.fields = ("values", "label")
        for given, option in (
            (self.id_column is None, "data.id_column, the column that names the series of a row"),
            (self.channels == "apart", "data.channels=together: a label belongs to all columns"),
            (self.rows is not None, "data.validation_fraction and data.test_fraction, not data.rows"),
        ):
            if given:
                raise UserError(f"data.label_column={self.label_column}: each series is in one split; set {option}")

    def _in_steps(self, series: Series) -> tuple[Series, list[str]]:
        filled, remarks = super()._in_steps(series)
        if self.label_column is None or filled is series:
            return filled, remarks
        # An added row would have no label.
        return series, [GAPS_STAY]

    @cached_property
    def _layout(self) -> TableLayout:
        return self._layout_of(Path(self.path), self.format, self.label_column)

    def labels(self, split: Split, kind: LabelKind) -> list[str]:
        found = []
        for place in np.flatnonzero(self._owner == SPLITS.index(split)).tolist():
            labels = self._labels[place]
            if kind in OF_NUMBERS:
                labels = ["" if label in ABSENT else label for label in labels]
                if self.decimal == ",":
                    labels = [label.replace(",", ".") for label in labels]
            where = f"data.label_column={self.label_column}: series {self.series.names[place]}"
            if kind not in OF_NUMBERS and (absent := {*labels} & {*ABSENT} - {""}):
                raise UserError(f"{where} has the label {min(absent)}, a missing value; leave it empty, or rename it")
            if kind in OF_WORDS:
                if any(len(label.split()) > 1 for label in labels):
                    raise UserError(f"{where} has a label with white space; remove the white space")
                found.append(" ".join(label or NO_LABEL for label in labels))
                continue
            distinct = list(dict.fromkeys(labels))
            if len(distinct) > 1:
                names = first_few([label or "none" for label in distinct])
                raise UserError(f"{where} has the labels {names}; {_ONE_EACH[kind]}")
            if not distinct[0]:
                raise UserError(f"{where} has no label; add one, or remove the series")
            found.append(distinct[0])
        return found

    def series_of(self, path: Path, columns: Sequence[str]) -> Series:
        return replace(self, path=str(path), columns=columns, label_column=None, format="auto")._as_written()

    @cached_property
    def _labels(self) -> list[list[str]]:
        """The labels of the rows of each series."""
        assert self.label_column is not None
        rows = read_texts(self._layout, self.label_column)
        return [rows[begin:end] for begin, end in pairwise(self.series.offsets)]

    @cached_property
    def _owner(self) -> Int[np.ndarray, " S"] | None:
        if self.label_column is None:
            return None
        return split_of_series(
            [" ".join(dict.fromkeys(labels)) for labels in self._labels],
            validation=self.validation_fraction,
            test=self.test_fraction,
        )


# -- series with labels: whole series are in a split -------------------------------------------------------------------


@runtime_checkable
class HoldsLabels(Protocol):
    """A source of series with labels; whole series are in a split."""

    def labels(self, split: Split, kind: LabelKind) -> list[str]:
        """Return the label of each series of a split: a name, a number, or those of its rows separated by spaces."""
        ...

    def series_of(self, path: Path, columns: Sequence[str]) -> Series:
        """Return the series of another file of the same format, which may lack labels."""
        ...


@runtime_checkable
class HoldsTexts(Protocol):
    """A source of series with a text for each series."""

    def written(self, split: Split) -> Iterator[Row]:
        """Return the rows of a split with only the field `target`."""
        ...


def rows_of(source: Source, split: Split) -> Iterator[Row]:
    """Return the rows of a split with all fields that are text."""
    return source.written(split) if isinstance(source, HoldsTexts) else source.rows(split)


def numbered_series(values: Float[np.ndarray, "T C"], lengths: Sequence[int], channel: str) -> Series:
    """Return series of these lengths, numbered from 1 and without times; `channel`: noun for names of columns."""
    width = values.shape[1]
    return Series(
        values=values,
        known=np.zeros((len(values), 0)),
        times=None,
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        names=tuple(f"series {number}" for number in range(1, len(lengths) + 1)),
        columns=("value",) if width == 1 else tuple(f"{channel} {number}" for number in range(1, width + 1)),
    )


def series_in(series: Series, owner: Int[np.ndarray, " S"], split: Split) -> SeriesSplit:
    """Return a split of whole series. `owner`: the split of each series, as `split_of_series` returns it."""
    first, last = series.offsets[:-1], series.offsets[1:]
    return SeriesSplit(series, first, np.where(owner == SPLITS.index(split), last, first))


def split_of_series(labels: Sequence[str], *, validation: float, test: float) -> Int[np.ndarray, " S"]:
    """Return the split of each series, as an index into SPLITS; it depends only on the labels.

    Labels are balanced across the splits, unless most occur once, as numbers do.

    Args:
        labels: Label of each series.
        validation: Fraction of the series that is validation; 0: none.
        test: Fraction of the series that is test; 0: none.

    Raises:
        UserError: There are too few series.
    """
    balanced = 2 * len(set(labels)) <= len(labels)
    of_label: dict[str, list[int]] = defaultdict(list)
    for place in map(int, shuffled(len(labels))):
        of_label[labels[place] if balanced else ""].append(place)
    owner = np.zeros(len(labels), dtype=np.int64)
    for places in of_label.values():
        begin = 0
        for name, fraction in (("validation", validation), ("test", test)):
            # At least one of each label, but train keeps one, too.
            count = min(max(int(len(places) * fraction), 1), len(places) - 1 - begin) if fraction else 0
            owner[places[begin : begin + count]] = SPLITS.index(name)
            begin += count
    for name, fraction in (("validation", validation), ("test", test)):
        if fraction and not (owner == SPLITS.index(name)).any():
            raise UserError(f"data.{name}_fraction={fraction}: too few series have the same label; add more series")
    return owner
