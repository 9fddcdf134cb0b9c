"""Columns of tables: conversion of stored values to a row, with one-line errors for invalid values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

from seqtrain.data.sources.base import Row
from seqtrain.errors import UserError, did_you_mean, first_few

LABELS = "text, integers or booleans"  # types of stored labels


class Column(NamedTuple):
    """A column that is read, and the option that names it."""

    option: str  # data.column
    name: str
    field: str  # field of the row: text, label, source or target
    is_number: bool = False  # True if the label is a number and not a name

    @property
    def is_label(self) -> bool:
        return self.field == "label"

    @property
    def value(self) -> str:
        """Noun for a value of this column, for messages."""
        if self.is_number:
            return "a number"
        return "a label" if self.is_label else "text"

    @property
    def storage(self) -> str:
        """Noun for the values that this column may contain, for messages."""
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
    """Return the same columns, with labels that are numbers."""
    return [column._replace(is_number=column.is_label) for column in columns]


def distinct(columns: list[Column]) -> list[Column]:
    """Return the columns; raise UserError if two are the same, because the answer would be the input."""
    for one, other in pairwise(columns):
        if one.name == other.name:
            raise UserError(f"{other.option}={other.name}: is {one.option} too; name two columns")
    return columns


def value_of(place: str, column: Column, value: Any) -> str:
    """Return a stored value as text; raise UserError if it is missing, or neither text nor a label.

    Args:
        place: Location of the value, for the message.
        column: Column of the value.
        value: The stored value.
    """
    if value is None:
        raise UserError(f"{place}: {column.name} is null; remove the row or give it {column.value}")
    if column.is_label and value == "":  # an empty text is allowed, an empty label is not
        raise UserError(f"{place}: {column.name} is empty; remove the row or give it {column.value}")
    if column.is_number:
        _check_number(place, column, value)
        return str(value)  # for a float, enough digits to restore it exactly
    if column.is_label and value in ("nan", "NaN"):  # how pandas writes a missing value
        raise UserError(f"{place}: {column.name} is {value}, a missing value; remove the row or give it another label")
    if column.is_label and isinstance(value, int):  # includes bool
        return str(value)
    if not isinstance(value, str):
        remedy = f"set {column.option} to a column of {column.storage}"
        if column.is_label and isinstance(value, list):
            remedy = "write the labels of words as one text, with white space between them and _ for none"
        raise UserError(f"{place}: {column.name} contains {type(value).__name__}, not {column.value}; {remedy}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair
            raise UserError(f"{place}: {column.name} is not valid Unicode at character {error.start}") from None
    return value


def _check_number(place: str, column: Column, value: Any) -> None:
    """Raise UserError unless a value is a finite number, or text that spells one, as in csv and tsv."""
    number = math.nan
    if not isinstance(value, bool):  # `float` would convert it to 0 or 1
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise UserError(
            f"{place}: {column.name} is {value}, which is not a finite number; remove the row or give it a number"
        )


def row_of(place: str, columns: Iterable[Column], values: Iterable[Any]) -> Row:
    """Return a row from its stored values in the order of the columns; raise UserError as `value_of` does."""
    return {column.field: value_of(place, column, value) for column, value in zip(columns, values, strict=True)}


def require(place: str, columns: Sequence[Column], known: Sequence[str]) -> None:
    """Raise UserError, with all faults at once, for columns that a table lacks or has more than once."""
    faults = [missing(place, column, known) for column in columns if column.name not in known]
    for column in columns:
        count = known.count(column.name)
        if count > 1:
            faults.append(f"{column.option}={column.name}: {place} has {count} columns with this name; keep one")
    if faults:
        raise UserError(*faults)


def missing(place: str, column: Column, known: Collection[str]) -> str:
    """Return the message for a missing column, with the existing columns."""
    fault = f"{column.option}={column.name}: {place} has columns {first_few(known)}"
    near = did_you_mean(column.name, known)
    if "mean" in near:  # otherwise it would list the columns again
        fault += near
    return fault
