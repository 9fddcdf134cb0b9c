"""Columns that are read from tables: what their values become in a row, and what is wrong with them in one line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from seqtrain.errors import UserError, did_you_mean

LABELS = "text, integers or booleans"  # how a label may be stored


class Column(NamedTuple):
    """A column that is read, and the option that names it."""

    option: str  # data.column
    name: str
    field: str  # what it is in a row: text, label, source or target

    @property
    def is_label(self) -> bool:
        return self.field == "label"


def columns_of(text: str, label: str | None, source: str | None, target: str | None) -> list[Column]:
    """What is read of a row; raises UserError for options that do not go together, and for one column read twice."""
    if source is None and target is None:
        labels = [] if label is None else [Column("data.label_column", label, "label")]
        return distinct([Column("data.column", text, "text"), *labels])
    if source is None or target is None:
        raise UserError("data.source_column and data.target_column: give both, or none")
    if label is not None:
        raise UserError(f"data.label_column={label}: pairs of data.source_column and data.target_column have no label")
    return distinct([Column("data.source_column", source, "source"), Column("data.target_column", target, "target")])


def distinct(columns: list[Column]) -> list[Column]:
    """The columns; raises UserError where two are one: there would be nothing to learn but to copy."""
    for one, other in pairwise(columns):
        if one.name == other.name:
            raise UserError(f"{other.option}={other.name}: is {one.option} too; name two columns")
    return columns


def value_of(place: str, column: Column, value: Any) -> str:
    """A stored value as text; raises UserError for what is missing, and for what is neither text nor a label."""
    kind = "a label" if column.is_label else "text"
    if value is None or (column.is_label and value == ""):
        state = "null" if value is None else "empty"
        raise UserError(f"{place}: {column.name} is {state}; remove the row or give it {kind}")
    if column.is_label and isinstance(value, int):  # a boolean is one, too
        return str(value)
    if not isinstance(value, str):
        remedy = f"set {column.option} to a column of {LABELS if column.is_label else 'text'}"
        raise UserError(f"{place}: {column.name} holds {type(value).__name__}, not {kind}; {remedy}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
            raise UserError(f"{place}: {column.name} is not valid Unicode at character {error.start}") from None
    return value


def check_kind(place: str, column: Column, kind: Any) -> None:
    """Raises UserError unless a parquet column of this pyarrow type can be read."""
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return
    if not column.is_label:
        raise UserError(f"{place}: column {column.name} holds {kind}, not text; set {column.option} to one of text")
    if not (types.is_integer(kind) or types.is_boolean(kind) or types.is_dictionary(kind)):
        raise UserError(
            f"{place}: column {column.name} holds {kind}, not labels; set {column.option} to one of {LABELS}"
        )


def require(place: str, columns: Sequence[Column], known: Sequence[str]) -> None:
    """Raises UserError for the columns that a table lacks, or has more than once, all at once."""
    faults = [missing(place, column, known) for column in columns if column.name not in known]
    faults += [
        f"{column.option}={column.name}: {place} has {known.count(column.name)} columns of this name; keep one"
        for column in columns
        if known.count(column.name) > 1
    ]
    if faults:
        raise UserError(*faults)


def missing(place: str, column: Column, known: Collection[str]) -> str:
    """The line that says which columns there are instead."""
    near = did_you_mean(column.name, known)
    return f"{column.option}={column.name}: {place} has columns {', '.join(known)}{near if 'mean' in near else ''}"
