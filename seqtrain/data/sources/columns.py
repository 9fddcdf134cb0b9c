"""Columns that are read from tables: the values they give a row, and one-line errors for values that cannot be read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

from seqtrain.data.sources.base import Row
from seqtrain.errors import UserError, did_you_mean, first_few

LABELS = "text, integers or booleans"  # how a label may be stored


class Column(NamedTuple):
    """A column that is read, and the option that names it."""

    option: str  # data.column
    name: str
    field: str  # what it is in a row: text, label, source or target
    is_number: bool = False  # whether a label is a number, and not a name

    @property
    def is_label(self) -> bool:
        return self.field == "label"

    @property
    def value(self) -> str:
        """Kind of value that a row has in this column, in words."""
        if self.is_number:
            return "a number"
        return "a label" if self.is_label else "text"

    @property
    def storage(self) -> str:
        """Kind of value that may be stored in this column, in words."""
        if self.is_number:
            return "numbers"
        return LABELS if self.is_label else "text"


def columns_of(text: str, label: str | None, source: str | None, target: str | None) -> list[Column]:
    """Return the columns to read; raise UserError for options that contradict each other, or a column read twice.

    Args:
        text: Name of the column of text.
        label: Name of the column of labels, or None.
        source: Name of the column of sources, or None; pairs have both `source` and `target`.
        target: Name of the column of targets, or None.
    """
    if source is None and target is None:
        columns = [Column("data.column", text, "text")]
        if label is not None:
            columns.append(Column("data.label_column", label, "label"))
        return distinct(columns)
    if source is None or target is None:
        raise UserError("data.source_column and data.target_column: give both, or none")
    if label is not None:
        raise UserError(f"data.label_column={label}: pairs of data.source_column and data.target_column have no label")
    return distinct([Column("data.source_column", source, "source"), Column("data.target_column", target, "target")])


def as_numbers(columns: Iterable[Column]) -> list[Column]:
    """Return the same columns, with a label that is a number."""
    return [column._replace(is_number=column.is_label) for column in columns]


def distinct(columns: list[Column]) -> list[Column]:
    """Return the columns; raise UserError where two are the same, because then the answer is the input."""
    for one, other in pairwise(columns):
        if one.name == other.name:
            raise UserError(f"{other.option}={other.name}: is {one.option} too; name two columns")
    return columns


def value_of(place: str, column: Column, value: Any) -> str:
    """Return a stored value as text; raise UserError if it is missing, or neither text nor a label.

    Args:
        place: Where the value stands, for the message.
        column: The column that it is in.
        value: The value as it is stored.
    """
    if value is None:
        raise UserError(f"{place}: {column.name} is null; remove the row or give it {column.value}")
    if column.is_label and value == "":  # an empty text is a text; an empty label tells nothing
        raise UserError(f"{place}: {column.name} is empty; remove the row or give it {column.value}")
    if column.is_number:
        _check_number(place, column, value)
        return str(value)  # of a float, as many digits as give back the same one
    if column.is_label and value in ("nan", "NaN"):  # pandas: str() of a missing value
        raise UserError(f"{place}: {column.name} is {value}, a missing value; remove the row or give it another label")
    if column.is_label and isinstance(value, int):  # a boolean is one, too
        return str(value)
    if not isinstance(value, str):
        raise UserError(
            f"{place}: {column.name} holds {type(value).__name__}, not {column.value}; "
            f"set {column.option} to a column of {column.storage}"
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
            raise UserError(f"{place}: {column.name} is not valid Unicode at character {error.start}") from None
    return value


def _check_number(place: str, column: Column, value: Any) -> None:
    """Raise UserError unless a value is a finite number, or a text that spells one: csv and tsv hold text only."""
    number = math.nan
    if not isinstance(value, bool):  # `float` would take it for 0 or 1
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise UserError(
            f"{place}: {column.name} is {value}, which is not a finite number; remove the row or give it a number"
        )


def row_of(place: str, columns: Iterable[Column], values: Iterable[Any]) -> Row:
    """Return the stored values of a row, in the order of the columns, as text; raise UserError as `value_of` does."""
    return {column.field: value_of(place, column, value) for column, value in zip(columns, values, strict=True)}


def require(place: str, columns: Sequence[Column], known: Sequence[str]) -> None:
    """Raise UserError, with all faults at once, for columns that a table lacks or has more than once."""
    faults = [missing(place, column, known) for column in columns if column.name not in known]
    for column in columns:
        count = known.count(column.name)
        if count > 1:
            faults.append(f"{column.option}={column.name}: {place} has {count} columns of this name; keep one")
    if faults:
        raise UserError(*faults)


def missing(place: str, column: Column, known: Collection[str]) -> str:
    """Return the message for a missing column, with the columns that there are instead."""
    fault = f"{column.option}={column.name}: {place} has columns {first_few(known)}"
    near = did_you_mean(column.name, known)
    if "mean" in near:  # otherwise it would list the columns once more
        fault += near
    return fault
