"""Rows of a table of series, read block by block, so that memory does not grow with the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.sources.opening import readable
from seqtrain.data.values.series import Clock
from seqtrain.data.values.tables import TableLayout
from seqtrain.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

ABSENT = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-nan", "#N/A"]
"""Texts that represent a missing value in a table."""

DECIMAL_COMMA = "\"data.decimal=','\""  # the outer quotes are for the shell, the inner ones for Hydra
BLOCK_BYTES = 1 << 22  # bytes read at a time; larger blocks do not fit into the caches of a CPU
LARGEST = 1e30  # maximum magnitude of a value: its square is finite, and its scaled value fits into a float32
NO_NUMBER = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to \w+.*invalid value '(.*)'", re.S
)


@dataclass(frozen=True)
class Block:
    """Some rows of a table."""

    names: list[str] | None  # names of its series, in order
    starts: Int[np.ndarray, " names"]  # first row of each series; the first one may continue from the block before
    times: Int[np.ndarray, " n"] | None  # seconds since 1970, or steps
    clock: Clock | None
    numbers: Float[np.ndarray, "n C+K"]  # float64: values and known columns, NaN where missing


def read_blocks(table: TableLayout) -> Iterator[Block]:
    """Yield the rows of a file in blocks.

    Raises:
        UserError: A value is not a number, a time is not valid, or the file is broken.
    """
    import pyarrow as pa

    num_rows = 0
    try:
        with readable(table.path):
            for batch in _batches(table):
                yield _block(table, batch)
                num_rows += len(batch)
    except pa.ArrowException as error:
        raise UserError(f"data.path={table.path}: {_in_words(table, str(error), num_rows)}") from None


def read_texts(table: TableLayout, column: str) -> list[str]:
    """Return a column of a file as texts, one for each row; a missing one is empty."""
    import pyarrow as pa

    if table.format == "jsonl":  # pyarrow takes the type from the first value, and refuses another one behind it
        with readable(table.path), open(table.path, encoding="utf-8-sig") as file:
            cells = [json.loads(line).get(column) for line in file if line.strip()]
        return ["" if cell is None else str(cell).strip() for cell in cells]
    alone = replace(table, values=(), known=(), time=None, id=column)
    found: list[str] = []
    with readable(table.path):
        for batch in _batches(alone):
            # NaN in a column of numbers is a missing label, and no class.
            absent = "nan" if pa.types.is_floating(batch.column(column).type) else ""
            texts = batch.column(column).cast(pa.string()).to_pylist()
            found += ["" if text in (None, absent) else text.strip() for text in texts]
    return found


def _in_words(table: TableLayout, fault: str, num_rows: int) -> str:
    """Return pyarrow's message for a broken file, reworded for a known fault.

    Args:
        table: The file and its columns.
        fault: The message.
        num_rows: Number of rows that were read before the fault.
    """
    found = NO_NUMBER.search(fault)
    # Checked first, because pyarrow reports a value after an unclosed quote, or none.
    if table.format in ("csv", "tsv") and (found is None or "\n" in found[3]):
        line = _open_quote(table.path)
        if line is not None:
            return f"line {line:,}: a quote is not closed in its line; close it, or remove it"
    if found is None:
        if "Empty CSV file" in fault:
            return "has no row below its header"
        if "invalid UTF8" in fault:
            return "is not UTF-8; convert it, for example with `iconv -f latin1 -t utf-8`"
        words = fault.partition("\n")[0].rstrip(".")
        ragged = re.search(r"Expected \d+ columns, got \d+", words)
        return f"{words}; correct the row, or quote values that contain the delimiter" if ragged else words
    column, line, value = table.columns[int(found[1])], found[2], found[3]
    # pyarrow knows the line only in the first block.
    where = f"line {int(line):,}" if line else f"after row {num_rows:,}"
    return f"{where}: {value!r} in column {column} is not a number; {_remedy(table, column, value)}"


def _open_quote(path: Path) -> int | None:
    """Return the number of the first line with an unclosed quote; None if there is none."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.count(b'"') % 2:
                return number
    return None


def _remedy(table: TableLayout, column: str, value: str) -> str:
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d*)?", value):
        return f"write thousands without commas; if they are decimals, set {DECIMAL_COMMA}"
    if table.decimal == "." and "," in value:
        return f"for decimal commas set {DECIMAL_COMMA}"
    remedies = [f"{'leave it empty' if len(table.columns) > 1 else 'write NaN'} if the value is missing"]
    if table.time is None:
        remedies.append(f"if it is the time, set data.time_column={column}")
    if table.id is None:
        remedies.append(f"if it names series, set data.id_column={column}")
    return "; ".join([*remedies, "or set data.columns to the columns of values"])


def _check_no_gap(path: Path) -> None:
    """Raise UserError if a line is empty before the last row: pyarrow would skip it, also where a value is missing."""
    empty = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and empty:
                raise UserError(
                    f"data.path={path}: line {empty:,} is empty; write NaN if its value is missing, or remove the line"
                )
            empty = empty or (0 if line.strip() else number)


def _batches(table: TableLayout) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    if table.format == "parquet":
        yield from pq.ParquetFile(table.path).iter_batches(columns=table.names)
    elif table.format == "jsonl":
        yield from _from_jsonl(table)
    else:
        yield from _from_csv(table)


def _from_jsonl(table: TableLayout) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.json as lines

    with open(table.path, encoding="utf-8-sig") as file:
        first = json.loads(file.readline())
    fields = []
    for name in table.names:
        kind = pa.float64()
        if name in (table.id, table.time):
            # From its first value: a type that is inferred for each block could change between blocks.
            kind = {int: pa.int64(), float: pa.float64()}.get(type(first[name]), pa.string())
        fields.append((name, kind))
    parsing = lines.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
    yield from lines.open_json(table.path, lines.ReadOptions(block_size=BLOCK_BYTES), parsing)


def _from_csv(table: TableLayout) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as tables

    if len(table.columns) == 1:
        _check_no_gap(table.path)
    # With these types a value that is not a number raises in any row, instead of being read as text.
    kinds = dict.fromkeys((*table.values, *table.known), pa.float64())
    for name in (table.id, table.time):
        if name is not None:
            kinds[name] = pa.string()
    convert = tables.ConvertOptions(
        column_types=kinds,
        include_columns=table.names,
        null_values=ABSENT,
        decimal_point=table.decimal,
    )
    yield from tables.open_csv(
        table.path,
        read_options=tables.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),  # threads report no line
        parse_options=tables.ParseOptions(delimiter=table.delimiter),
        convert_options=convert,
    )


def _block(table: TableLayout, batch: pa.RecordBatch) -> Block:
    columns = (*table.values, *table.known)
    numbers = np.empty((len(batch), len(columns)))
    for place, name in enumerate(columns):
        numbers[:, place] = _numbers(table, name, batch.column(name))
    times, clock = None, None
    if table.time is not None:
        times, clock = in_seconds(table, batch.column(table.time))
    names, starts = None, np.zeros(0, dtype=np.int64)
    if table.id is not None:
        names, starts = _runs(table, batch.column(table.id))
    return Block(names, starts, times, clock, numbers)


def _runs(table: TableLayout, column: pa.Array) -> tuple[list[str], Int[np.ndarray, " names"]]:
    """Return the name of each run of equal ids, and its first row (names,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A trailing space would make another series, which may be in another split.
    text = pc.call_function("utf8_trim_whitespace", [column.cast(pa.string())])
    # pandas writes nan for a missing id in a column of numbers.
    if text.null_count or not {"", "nan", "NaN"}.isdisjoint(text.unique().to_pylist()):
        raise UserError(f"data.path={table.path}: column {table.id} has a row without a name of its series; add it")
    runs = pc.call_function("run_end_encode", [text])
    ends = runs.run_ends.to_numpy(zero_copy_only=False).astype(np.int64)
    return runs.values.to_pylist(), np.concatenate([[0], ends])[:-1]


def _numbers(table: TableLayout, name: str, column: pa.Array) -> Float[np.ndarray, " n"]:
    import pyarrow as pa

    kind = column.type
    # Databases export prices as decimals, which are numbers, too.
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (is_number or pa.types.is_null(kind)):
        raise UserError(f"data.path={table.path}: column {name} contains {kind}; expected numbers")
    found = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    wrong = np.abs(found) > LARGEST
    if wrong.any():
        value = found[wrong][0]
        size = "an infinite number" if np.isinf(value) else f"{value:g}, which is too large"
        raise UserError(f"data.path={table.path}: column {name} contains {size}; correct it, or leave it empty")
    return found


DAY = 86400  # seconds
WHOLE = re.compile(r"-?\d+")
ZONED = r"[T ]\d\d.*[Z+-]"  # a time in ISO 8601 with a time zone


def in_seconds(table: TableLayout, column: pa.Array) -> tuple[Int[np.ndarray, " n"], Clock]:
    """Return seconds since 1970, or steps, and their format; raise UserError for a missing or invalid time."""
    import pyarrow as pa

    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if column.null_count or (is_text and not all(column.unique().to_pylist())):
        raise UserError(f"data.path={table.path}: column {table.time} has a row without a time; add it")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        seconds = _seconds(column)
        # The times of a table of days are written without hours.
        is_day = pa.types.is_date(kind) or (kind.tz is None and not (seconds % DAY).any())
        return seconds, Clock.of(table.time, str(column[-1].as_py())[: 10 if is_day else None])
    is_whole = pa.types.is_integer(kind) or (is_text and all(map(WHOLE.fullmatch, column[:1].to_pylist())))
    if is_whole and table.time_format is None:
        try:
            return column.cast(pa.int64()).to_numpy(zero_copy_only=False), Clock(table.time, "")
        except pa.ArrowInvalid as error:
            raise UserError(f"data.path={table.path}: column {table.time}: {error}") from None
    if is_text or is_whole:
        return _parsed(table, column.cast(pa.string()))
    raise UserError(f"data.path={table.path}: column {table.time} contains {kind}; expected dates or whole numbers")


def _seconds(column: pa.Array) -> Int[np.ndarray, " n"]:
    import pyarrow as pa

    # Rounded down, also before 1970.
    whole = column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[whole.type.unit]
    return whole.cast(pa.int64()).to_numpy(zero_copy_only=False) // units


def _parsed(table: TableLayout, column: pa.Array) -> tuple[Int[np.ndarray, " n"], Clock]:
    """Return texts as seconds since 1970, and their format."""
    import pandas as pd

    form = table.time_format
    texts: Any = pd.Series(column.to_pylist())
    try:
        parsed = pd.to_datetime(texts, format=form or "ISO8601", utc=True, errors="coerce")  # NaT: not a time
    except ValueError as error:
        raise UserError(f"data.time_format={form}: {error}") from None
    if parsed.isna().any():
        wanted = form or "2026-01-31 13:00:00"
        raise UserError(
            f"data.path={table.path}: column {table.time} contains {texts[parsed.isna()].iloc[0]!r}; expected times "
            f"like {wanted}; set data.time_format, such as data.time_format='%d/%m/%Y'"
        )
    # Rounded down, also before 1970.
    seconds = parsed.dt.floor("s").dt.as_unit("s").astype("int64").to_numpy()
    if form is not None:
        offset = pd.to_datetime(texts.iloc[-1], format=form).utcoffset()
        return seconds, Clock(table.time, form, None if offset is None else int(offset.total_seconds()))
    if texts.str.contains(ZONED).nunique() > 1:
        raise UserError(
            f"data.path={table.path}: column {table.time} has times with a time zone and others without; use one form "
            "for all"
        )
    # The last of the longest texts: some programs omit 00:00, and the time zone may change with the season.
    lengths = texts.str.len()
    return seconds, Clock.of(table.time, texts[lengths == lengths.max()].iloc[-1])
