"""Tables of series read from files, block by block: csv, tsv, parquet and jsonl."""

from __future__ import annotations

import codecs
import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seqtrain.data.sources.unreadable import absent, readable, sniff
from seqtrain.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["auto", "csv", "tsv", "parquet", "jsonl"]
FORMATS = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".jsonl": "jsonl"}
ABSENT = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-nan", "#N/A"]
"""What stands in a table for a value that is missing."""

TIME_NAMES = ("date", "time", "timestamp", "datetime", "ds")
BLOCK_BYTES = 1 << 24  # of a file that are read at a time
MAX_HEADER_BYTES = 1 << 20
NEW_LINE = b"\n"


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

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [*filter(None, (self.id, self.time)), *self.values, *self.known]


@dataclass(frozen=True)
class Block:
    """Some rows of a table."""

    ids: list[str] | None
    times: np.ndarray | None  # (n,) int64: seconds since 1970, or steps
    is_date: bool
    numbers: np.ndarray  # (n, C + K) float64: values and known columns, NaN where missing


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
    if not path.is_file():
        raise UserError(f"data.path={path}: {absent(path, 'file')}")
    kind = FORMATS.get(path.suffix.lower()) if format == "auto" else format
    if kind is None:
        raise UserError(f"data.path={path}: expected a name that ends in {', '.join(FORMATS)}; or set data.format")
    if kind != "parquet":
        # A zip or a spreadsheet under the name of a csv is told by its first bytes, not as a broken number.
        reason = sniff(path)
        if reason:
            raise UserError(f"data.path={path}: {reason}")
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
    twice = set(rest) & taken
    if twice:
        raise UserError(f"data.columns: {min(map(str, twice))} is also the time, the id or known ahead; name it once")
    if not rest:
        raise UserError(f"data.path={path}: has no column of values beside its time; name some in data.columns")
    return Layout(path, kind, delimiter, decimal, rest, tuple(known), time, time_format, id)


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
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _header(path: Path, line: str, delimiter: str) -> list[str]:
    """The names of the columns; UserError where the first line holds values, or a name twice."""
    names = next(csv.reader([line], delimiter=delimiter))
    # Else the first row would be lost without a word, and columns named by its values.
    numbers = [name for name in names if _is_number(name)]
    if numbers:
        raise UserError(
            f"data.path={path}: its first line holds the value {numbers[0]}, and no names of columns; put a header "
            "line before it"
        )
    _check_distinct(path, names)
    return names


def _check_distinct(path: Path, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"data.path={path}: has the column {name!r} twice; rename one")


def _is_number(text: str) -> bool:
    try:
        # Decimal commas as well: here it is only asked whether it is a name.
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _columns_of_records(path: Path, kind: str) -> list[str]:
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with readable(path):
                names = list(pq.ParquetFile(path).schema_arrow.names)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"data.path={path}: cannot be read as parquet ({_first_words(error)})") from None
        _check_distinct(path, names)
        return names
    try:
        record = json.loads(_first_line(path))
    except ValueError as error:
        raise UserError(f"data.path={path}: line 1 is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise UserError(f"data.path={path}: line 1 is no JSON object; each line must be one")
    return list(record)


def read_blocks(table: Layout) -> Iterator[Block]:
    """The rows of a file, some at a time.

    Raises:
        UserError: A value is no number, a time is none, or the file is broken.
    """
    import pyarrow as pa

    try:
        with readable(table.path):
            for batch in _batches(table):
                yield _block(table, batch)
    except pa.ArrowException as error:
        raise UserError(f"data.path={table.path}: {_first_words(error)}{_hint(table, error)}") from None


def _hint(table: Layout, error: Exception) -> str:
    """What a broken number may mean."""
    if table.decimal == "." and "," in str(error).partition("invalid value")[2]:
        return "; for decimal commas set data.decimal=','"
    return ""


def _first_words(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _batches(table: Layout) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as tables
    import pyarrow.parquet as pq

    if table.format == "parquet":
        yield from pq.ParquetFile(table.path).iter_batches(columns=table.names)
        return
    if table.format == "jsonl":
        import pyarrow.json as lines

        yield from lines.read_json(table.path).select(table.names).to_batches()
        return
    # What is no number is refused, wherever it stands, and not read as text.
    kinds = dict.fromkeys((*table.values, *table.known), pa.float64())
    if table.id is not None:
        kinds[table.id] = pa.string()
    parsers = [tables.ISO8601]
    if table.time_format is not None and table.time is not None:
        parsers = [table.time_format]
        kinds[table.time] = pa.timestamp("s")
    convert = tables.ConvertOptions(
        column_types=kinds,
        include_columns=table.names,
        null_values=ABSENT,
        timestamp_parsers=parsers,
        decimal_point=table.decimal,
    )
    yield from tables.open_csv(
        table.path,
        read_options=tables.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=tables.ParseOptions(delimiter=table.delimiter),
        convert_options=convert,
    )


def _block(table: Layout, batch: pa.RecordBatch) -> Block:
    numbers = [_numbers(table, name, batch.column(name)) for name in (*table.values, *table.known)]
    times, is_date = None, False
    if table.time is not None:
        times, is_date = _times(table, batch.column(table.time))
    ids = None
    if table.id is not None:
        ids = list(map(str, batch.column(table.id).to_pylist()))
    return Block(ids, times, is_date, np.stack(numbers, 1) if numbers else np.zeros((len(batch), 0)))


def _numbers(table: Layout, name: str, column: pa.Array) -> np.ndarray:
    import pyarrow as pa

    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type)):
        # Databases export prices as decimals, which are numbers all the same.
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        else:
            raise UserError(f"data.path={table.path}: column {name} holds {column.type}, and no numbers")
    found = column.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    # One such value would make mean and deviation, and so the whole column, infinite.
    if np.isinf(found).any():
        raise UserError(f"data.path={table.path}: column {name} holds an infinite number; mend it, or leave it empty")
    return found


def _times(table: Layout, column: pa.Array) -> tuple[np.ndarray, bool]:
    """Seconds since 1970, or steps; whether they are dates."""
    import pyarrow as pa

    if column.null_count:
        raise UserError(f"data.path={table.path}: column {table.time} has a row without a time; give it one")
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        seconds = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
        return seconds.to_numpy(zero_copy_only=False), True
    if pa.types.is_integer(kind):
        return column.to_numpy(zero_copy_only=False).astype(np.int64), False
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _parsed(table, column.to_pylist()), True
    raise UserError(f"data.path={table.path}: column {table.time} holds {kind}; expected dates, or whole numbers")


def _parsed(table: Layout, texts: list[str]) -> np.ndarray:
    """Texts as seconds since 1970."""
    seconds = []
    for text in texts:
        try:
            when = _when(text, table.time_format)
        except ValueError:
            wanted = table.time_format or "2026-01-31 13:00:00"
            raise UserError(
                f"data.path={table.path}: column {table.time} holds {text!r}, which is no time like {wanted}; set "
                "data.time_format, as in data.time_format='%d/%m/%Y'"
            ) from None
        # Floor, and not int, which would round times before 1970 up.
        seconds.append(math.floor((when - datetime(1970, 1, 1)).total_seconds()))
    return np.array(seconds, dtype=np.int64)


def _when(text: Any, time_format: str | None) -> datetime:
    if time_format is not None:
        return datetime.strptime(text, time_format).replace(tzinfo=None)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return datetime.combine(date.fromisoformat(text), datetime.min.time())
