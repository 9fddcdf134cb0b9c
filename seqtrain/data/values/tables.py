"""Detection of the columns of a csv, tsv, parquet or jsonl file: time, values, and the names of series."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Int

from seqtrain.data.sources.opening import absent, readable, sniff
from seqtrain.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["auto", "csv", "tsv", "parquet", "jsonl"]
FORMATS = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".jsonl": "jsonl"}
TIME_NAMES = ("date", "time", "timestamp", "datetime", "ds")
RISING_NAMES = ("year", "quarter", "month", "week", "day", "hour")  # columns of time if their values increase
INDEX_NAMES = ("", "index", "unnamed: 0", "__index_level_0__")  # pandas' names of an unnamed index
SHORT_FORMS = {"%Y-%m": r"\d{4}-\d\d", "%Y%m%d": r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])"}
SAMPLED_ROWS, FEWEST_STEPS = 1000, 9  # rows for detecting the columns, and steps for detecting an index
MAX_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class TableLayout:
    """Columns of a table and their uses."""

    path: Path
    format: str
    delimiter: str
    decimal: str
    values: tuple[str, ...]
    known: tuple[str, ...]
    time: str | None
    time_format: str | None
    id: str | None
    columns: tuple[str, ...]  # all columns of the file, in its order
    left_out: tuple[str, ...] = ()  # index columns of pandas

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [*_given(self.id, self.time), *self.values, *self.known]


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
    label: str | None = None,
) -> TableLayout:
    """Return the columns of a file; if `time` is None, the time column is detected from its first rows and its name.

    Args:
        path: The file.
        format: Format of the file; `auto`: by its extension.
        decimal: Decimal separator.
        values: Columns of values; None: all columns without another use.
        known: Columns that are known ahead of time.
        time: Column of time; None: detected.
        time_format: Format for strptime, if times are not ISO 8601.
        id: Column that names series; None: one series.
        label: Column of labels; None: no labels.

    Raises:
        UserError: There is no such file, its format is unknown, it has no header, or it lacks a column.
    """
    if path.is_dir():
        raise UserError(f"data.path={path}: is a folder; set it to one file")
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
        # If numbers have decimal commas, the delimiter is not a comma.
        if kind == "csv" and (decimal == "," or header.count(";") > header.count(",")):
            delimiter = ";"
        columns = _header(path, header, delimiter)
    named = {"data.columns": values or (), "data.known_columns": known, "data.time_column": _given(time)}
    named |= {"data.id_column": _given(id), "data.label_column": _given(label)}
    for option, names in named.items():
        for name in names:
            if name not in columns:
                raise UserError(f"{option}={name}: {path} has no such column{did_you_mean(name, columns)}")
    sample = _sample(path, kind, delimiter)
    if time is None:
        time = _time_column(path, sample, [name for name in columns if name not in {id, label, *(values or ())}], id)
    taken = {time, id, label, *known}
    rest = tuple(name for name in columns if name not in taken) if values is None else tuple(values)
    left_out = tuple(_indices(path, sample, rest, id, time)) if values is None else ()
    rest = tuple(name for name in rest if name not in left_out)
    if "" in rest:
        raise UserError(f"data.path={path}: column {columns.index('') + 1} has no name in the header; name it")
    if time is not None and time_format is None and sample is not None:
        time_format = _short_form(sample.column(time))
    _check_once({**named, "data.columns": rest, "data.time_column": _given(time)})
    if not rest:
        raise UserError(f"data.path={path}: has no column of values besides its time; set data.columns")
    return TableLayout(
        path, kind, delimiter, decimal, rest, tuple(known), time, time_format, id, tuple(columns), left_out
    )


def _given(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _time_column(path: Path, sample: pa.RecordBatch | None, columns: list[str], id: str | None) -> str | None:
    """Return the column whose first rows are dates, or else one with a usual name of times; None if there is none."""
    called = [name for name in columns if name.strip().lower() in TIME_NAMES]
    dated = [name for name in columns if sample is not None and _holds_dates(sample.column(name))]
    both = [name for name in called if name in dated]
    if len(dated) > 1 and len(both) != 1:
        raise UserError(
            f"data.path={path}: columns {' and '.join(dated[:3])} contain dates; set data.time_column to the time, and "
            "data.columns to the values"
        )
    rising = [name for name in columns if name.strip().lower() in RISING_NAMES and _steps(sample, name, id).min() > 0]
    return next(iter((*both, *dated, *called, *rising)), None)


def _indices(
    path: Path, sample: pa.RecordBatch | None, values: Sequence[str], id: str | None, time: str | None
) -> Iterator[str]:
    """Yield the index columns of pandas; raise UserError for any other column that only counts up."""
    for name in values:
        steps = _steps(sample, name, id)
        if len(values) == 1 or len(steps) < FEWEST_STEPS or steps[0] <= 0 or (steps != steps[0]).any():
            continue
        if name.strip().lower() in INDEX_NAMES:
            yield name
            continue
        remedy = f"if it is not a value, set data.columns=[{','.join(each for each in values if each != name)}]"
        if time is None:
            remedy = f"if it is the time, set data.time_column={name}; {remedy}"
        raise UserError(f"data.path={path}: column {name} only counts up, like an index; {remedy}")


def _holds_dates(column: pa.Array) -> bool:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.null_count < len(column)
    return pa.types.is_string(kind) and _short_form(column) is not None


def _short_form(column: pa.Array) -> str | None:
    """Return the format in SHORT_FORMS of all rows, which pyarrow does not parse; None if a row has another one."""
    texts = [str(text) for text in column.to_pylist()]
    for form, wanted in SHORT_FORMS.items():
        if texts and all(re.fullmatch(wanted, text) for text in texts):
            return form
    return None


def _steps(sample: pa.RecordBatch | None, name: str, id: str | None) -> Int[np.ndarray, " n"]:
    """Return the differences of a column of whole numbers between rows of one series; 0 for any other column."""
    import pyarrow as pa

    nothing = np.zeros(1, dtype=np.int64)
    column = None if sample is None else sample.column(name)
    if sample is None or column is None or not pa.types.is_integer(column.type) or column.null_count:
        return nothing
    ids = np.zeros(len(column)) if id is None else np.array(sample.column(id).to_pylist())
    steps = np.diff(column.to_numpy().astype(np.int64))[ids[1:] == ids[:-1]]
    return steps if len(steps) else nothing


def _sample(path: Path, kind: str, delimiter: str) -> pa.RecordBatch | None:
    """Return the first rows of a table, as pyarrow reads them; None if they are broken: the full read reports it."""
    import pyarrow as pa
    import pyarrow.csv as tables
    import pyarrow.json as lines
    import pyarrow.parquet as pq

    try:
        if kind == "parquet":
            batches: Any = pq.ParquetFile(path).iter_batches(SAMPLED_ROWS)
        elif kind == "jsonl":
            batches = lines.open_json(path)
        else:
            batches = tables.open_csv(path, parse_options=tables.ParseOptions(delimiter=delimiter))
        return next(iter(batches)).slice(0, SAMPLED_ROWS)
    except (pa.ArrowException, OSError, StopIteration):
        return None


def _check_once(options: dict[str, Sequence[str]]) -> None:
    """Raise UserError if a column is named twice; a column has only one use."""
    seen: dict[str, str] = {}
    for option, names in options.items():
        for name in names:
            if name in seen:
                where = option if option == seen[name] else f"{seen[name]} and {option}"
                raise UserError(f"{where}: column {name} is named twice; name it once")
            seen[name] = option


def _first_line(path: Path) -> str:
    with readable(path), open(path, "rb") as file:
        # Bounded, because a file without line ends would be read completely.
        line = file.readline(MAX_HEADER_BYTES)
        line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            raise UserError(f"data.path={path}: is empty, or begins with an empty line")
        text = line.decode().rstrip("\r\n")
    if "\r" in text:
        raise UserError(f"data.path={path}: its lines end in a carriage return only; convert them to line feeds")
    return text


def _header(path: Path, line: str, delimiter: str) -> list[str]:
    """Return the names of the columns; raise UserError if the first line contains values, or a name twice."""
    names = next(csv.reader([line], delimiter=delimiter))
    # Otherwise the first row would be lost silently, and columns would be named by its values.
    values = [name for name in names if _is_value(name)]
    if values:
        raise UserError(
            f"data.path={path}: its first line contains the value {values[0]}, not names of columns; add a header line "
            "before it"
        )
    _check_distinct(path, names)
    return names


def _check_distinct(path: Path, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"data.path={path}: has the column {name!r} twice; rename one")


def _is_value(text: str) -> bool:
    """Return True if a text is a number or a date, so it is not the name of a column."""
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
        raise UserError(f"data.path={path}: line 1 is not JSON ({error})") from None
    if not isinstance(record, dict):
        raise UserError(f"data.path={path}: line 1 is not a JSON object; each line must be one")
    return list(record)
