"""Which columns of a csv, tsv, parquet or jsonl file are time, values and the names of series."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from seqtrain.data.sources.unreadable import absent, readable, sniff
from seqtrain.errors import UserError, did_you_mean

Format = Literal["auto", "csv", "tsv", "parquet", "jsonl"]
FORMATS = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".jsonl": "jsonl"}
TIME_NAMES = ("date", "time", "timestamp", "datetime", "ds")
MAX_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class Layout:
    """Which columns of a table are what."""

    path: Path
    format: str
    delimiter: str
    decimal: str
    values: tuple[str, ...]
    known: tuple[str, ...]
    time: str | None
    time_format: str | None
    id: str | None
    columns: tuple[str, ...]  # all of the file, in its order

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [*filter(None, (self.id, self.time)), *self.values, *self.known]


def layout(
    path: Path,
    *,
    format: Format,
    decimal: str,
    values: Sequence[str] | None,
    known: Sequence[str],
    time: str | None,
    time_format: str | None,
    id: str | None,
) -> Layout:
    """What the columns of a file are; the time column is found by its name where none is named.

    Raises:
        UserError: There is no such file, it is none of these kinds, has no header, or lacks a column.
    """
    if path.is_dir():
        raise UserError(f"data.path={path}: is a folder; name one file")
    if not path.is_file():
        raise UserError(f"data.path={path}: {absent(path, 'file')}")
    kind = FORMATS.get(path.suffix.lower()) if format == "auto" else format
    reason = None if kind == "parquet" else sniff(path)
    if reason:
        raise UserError(f"data.path={path}: {reason}")
    if kind is None:
        raise UserError(f"data.path={path}: expected a name that ends in {', '.join(FORMATS)}; or set data.format")
    delimiter = {"tsv": "\t"}.get(kind, ",")
    if kind == "parquet" or kind == "jsonl":
        columns = _columns_of_records(path, kind)
    else:
        header = _first_line(path)
        # Where a comma is in numbers, it does not stand between them.
        if kind == "csv" and (decimal == "," or header.count(";") > header.count(",")):
            delimiter = ";"
        columns = _header(path, header, delimiter)
    if time is None:
        time = next((name for name in columns if name.strip().lower() in TIME_NAMES and name != id), None)
    for option, name in (("data.time_column", time), ("data.id_column", id)):
        _check_column(path, columns, option, name)
    for option, names in (("data.columns", values or ()), ("data.known_columns", known)):
        for name in names:
            _check_column(path, columns, option, name)
    taken = {time, id, *known}
    rest = tuple(name for name in columns if name not in taken) if values is None else tuple(values)
    _check_once({"data.columns": rest, "data.known_columns": known, "data.time_column": [time], "data.id_column": [id]})
    if not rest:
        raise UserError(f"data.path={path}: has no column of values beside its time; name some in data.columns")
    return Layout(path, kind, delimiter, decimal, rest, tuple(known), time, time_format, id, tuple(columns))


def _check_once(options: dict[str, Sequence[str | None]]) -> None:
    """UserError where a column is named twice: it is one thing only."""
    seen: dict[str, str] = {}
    for option, names in options.items():
        for name in filter(None, names):
            if name in seen:
                where = option if option == seen[name] else f"{seen[name]} and {option}"
                raise UserError(f"{where}: column {name} is named twice; name it once")
            seen[name] = option


def _check_column(path: Path, columns: list[str], option: str, name: str | None) -> None:
    if name is not None and name not in columns:
        raise UserError(f"{option}={name}: {path} has no such column{did_you_mean(name, columns)}")


def _first_line(path: Path) -> str:
    with readable(path), open(path, "rb") as file:
        # With a bound: a file without line ends would be read whole.
        line = file.readline(MAX_HEADER_BYTES)
        line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            raise UserError(f"data.path={path}: is empty, or begins with an empty line")
        text = line.decode().rstrip("\r\n")
    if "\r" in text:
        raise UserError(f"data.path={path}: its lines end in a carriage return alone; end them in line feeds")
    return text


def _header(path: Path, line: str, delimiter: str) -> list[str]:
    """The names of the columns; UserError where the first line holds values, or a name twice."""
    names = next(csv.reader([line], delimiter=delimiter))
    # Else the first row would be lost without a word, and columns named by its values.
    values = [name for name in names if _is_value(name)]
    if values:
        raise UserError(
            f"data.path={path}: its first line holds the value {values[0]}, and no names of columns; put a header "
            "line before it"
        )
    _check_distinct(path, names)
    return names


def _check_distinct(path: Path, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"data.path={path}: has the column {name!r} twice; rename one")


def _is_value(text: str) -> bool:
    """Whether it is a number or a date, and no name of a column."""
    for read in (float, datetime.fromisoformat):
        try:
            read(text.replace(",", "."))
            return True
        except ValueError:
            continue
    return False


def _columns_of_records(path: Path, kind: str) -> list[str]:
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with readable(path):
                names = list(pq.ParquetFile(path).schema_arrow.names)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"data.path={path}: cannot be read as parquet ({str(error).partition('. ')[0]})") from None
        _check_distinct(path, names)
        return names
    try:
        record = json.loads(_first_line(path))
    except ValueError as error:
        raise UserError(f"data.path={path}: line 1 is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise UserError(f"data.path={path}: line 1 is no JSON object; each line must be one")
    return list(record)
