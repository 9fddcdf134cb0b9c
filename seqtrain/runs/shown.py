"""Samples and confusion counts of validations, stored in the run: samples as text and by columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.errors import UserError
from seqtrain.files.atomic import exists, listed, plain_json, write_text
from seqtrain.files.checked import open_checked
from seqtrain.files.untrusted import read_json
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import LONGEST

if TYPE_CHECKING:
    from seqtrain.data.values.fan import Fan

MAX_CELLS = 1 << 16  # limit for a table, which may be untrusted
Cell = str | float | bool


@dataclass(frozen=True)
class Table:
    """Rows by columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Confusion:
    """Confusion counts: examples of each true label (row) by predicted label (column)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Samples:
    """Samples of a validation: output of the model."""

    text: str
    table: Table | None  # None if the run stored none
    fans: tuple[Fan | None, ...] = ()  # the forecast plot of each row; empty if no row has one


def write_samples(
    run: Run, step: int, text: str, columns: Sequence[Mapping[str, Cell]], fans: Sequence[Fan | None] = ()
) -> Samples:
    """Write the samples of a validation and return them: text, columns, and the numbers of forecast plots.

    Args:
        run: Run directory.
        step: Step of the validation.
        text: All samples as text.
        columns: Values of each sample, by column.
        fans: Forecast plot of each sample, or None.
    """
    from seqtrain.data.values.fan import to_list  # imports numpy, which commands that only show help do not need

    names = tuple(dict.fromkeys(name for row in columns for name in row))
    # Samples of one task may have different columns: missing values are empty.
    rows = tuple(tuple(row.get(name, "") for name in names) for row in columns)
    write_text(run.samples / f"step-{step:08d}.txt", text)
    content: dict[str, Any] = {"columns": names, "rows": rows}
    drawn = to_list(fans)
    if drawn:
        content["fans"] = drawn
    write_text(run.samples / f"step-{step:08d}.json", plain_json(content))
    return Samples(text, Table(names, rows), tuple(fans) if drawn else ())


def read_samples(run: Run, step: int) -> Samples | None:
    """Read the samples of a validation; return None if there are none.

    Raises:
        UserError: The files are not in the form that a run writes.
    """
    path = run.samples / f"step-{step:08d}.txt"
    if not exists(path):
        return None
    with open_checked(path) as file:
        text = file.read(LONGEST).decode("utf-8", "replace")
    columns = path.with_suffix(".json")
    if not exists(columns):
        return Samples(text, None)
    content = read_json(columns)
    return Samples(text, _table(columns, content), _fans(columns, content))


def write_confusion(run: Run, step: int, confusion: Confusion) -> None:
    """Write the confusion counts of a validation."""
    content = {"labels": confusion.labels, "counts": confusion.counts}
    write_text(run.plots / f"confusion-{step:08d}.json", plain_json(content))


def read_confusion(run: Run, step: int) -> Confusion | None:
    """Read the confusion counts of a validation; return None if there are none.

    Raises:
        UserError: The file is not in the form that a run writes.
    """
    path = run.plots / f"confusion-{step:08d}.json"
    if not exists(path):
        return None
    content = read_json(path)
    labels, counts = _list(path, content, "labels"), _list(path, content, "counts")
    size = len(labels)
    for row in counts:
        if not isinstance(row, list) or len(row) != size or not all(type(count) is int for count in row):
            raise _damaged(path)
    if len(counts) != size or not all(isinstance(label, str) for label in labels):
        raise _damaged(path)
    return Confusion(tuple(labels), tuple(map(tuple, counts)))


def steps_with_confusion(run: Run) -> set[int]:
    """Return the steps whose confusion counts were kept."""
    return _steps(run.path / "plots", "confusion-", ".json")


def steps_with_samples(run: Run) -> set[int]:
    """Return the steps whose samples were kept."""
    return _steps(run.path / "samples", "step-", ".txt")


def _steps(folder: Path, before: str, after: str) -> set[int]:
    steps = set()
    for path in listed(folder, f"{before}*{after}"):
        number = path.name.removeprefix(before).removesuffix(after)
        if re.fullmatch(r"\d{8,12}", number, re.ASCII):  # otherwise not one of our files
            steps.add(int(number))
    return steps


def _fans(path: Path, content: Any) -> tuple[Fan | None, ...]:
    """Return the forecast plots of samples; empty if the run stored none."""
    if "fans" not in content:
        return ()
    from seqtrain.data.values.fan import as_list

    try:
        found = as_list(content["fans"])
    except (ValueError, TypeError):
        raise _damaged(path) from None
    # Plots belong to rows by position: with another number of plots, they would appear next to the wrong rows.
    if len(found) != len(content["rows"]):
        raise _damaged(path)
    return found


def _table(path: Path, content: Any) -> Table:
    columns, rows = _list(path, content, "columns"), _list(path, content, "rows")
    if not all(isinstance(name, str) for name in columns) or len(columns) * len(rows) > MAX_CELLS:
        raise _damaged(path)
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns) or not all(map(_is_cell, row)):
            raise _damaged(path)
    return Table(tuple(columns), tuple(map(tuple, rows)))


def _is_cell(value: Any) -> bool:
    # W&B would read a mapping as a file or an image, and fetch it from the path in it.
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int | bool)


def _list(path: Path, content: Any, name: str) -> list[Any]:
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, list):
        raise _damaged(path)
    return found


def _damaged(path: Path) -> UserError:
    return UserError(f"{path}: not in the form that a run writes; remove it")
