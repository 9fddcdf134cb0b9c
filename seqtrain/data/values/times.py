"""Times of a table as seconds since 1970, or as steps."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import numpy as np
from jaxtyping import Int

from seqtrain.data.values.series import Clock
from seqtrain.data.values.tables import Layout
from seqtrain.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

FAST = set("YmdHMSyIpbB")  # what pyarrow reads of a time as Python does
EPOCH = datetime(1970, 1, 1)
DAY = 86400  # seconds
WHOLE = re.compile(r"-?\d+")


def _are_read_here(time_format: str) -> bool:
    """Return True if times of that format are parsed by Python, which knows more formats than pyarrow and is slower."""
    parts = time_format.replace("%%", "").split("%")[1:]
    return not all(part[:1] in FAST for part in parts) or "%" not in time_format


def in_seconds(table: Layout, column: pa.Array) -> tuple[Int[np.ndarray, " n"], Clock]:
    """Return seconds since 1970, or steps, and their format; raise UserError for a missing or invalid time."""
    import pyarrow as pa

    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if column.null_count or (is_text and not all(column.unique().to_pylist())):
        raise UserError(f"data.path={table.path}: column {table.time} has a row without a time; give it one")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        seconds = _seconds(column)
        # A table of days has no hours to be written.
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
    raise UserError(f"data.path={table.path}: column {table.time} holds {kind}; expected dates, or whole numbers")


def _seconds(column: pa.Array) -> Int[np.ndarray, " n"]:
    import pyarrow as pa

    # Towards the past, also before 1970.
    whole = column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[whole.type.unit]
    return whole.cast(pa.int64()).to_numpy(zero_copy_only=False) // units


def _parsed(table: Layout, column: pa.Array) -> tuple[Int[np.ndarray, " n"], Clock]:
    """Return texts as seconds since 1970, and their format."""
    import pyarrow as pa
    import pyarrow.compute as pc

    form = table.time_format
    if form is None:
        # The last one of the longest: some programs write midnight as a day, and summer has another zone than winter.
        lengths = pc.call_function("utf8_length", [column]).to_numpy(zero_copy_only=False)
        clock = Clock.of(table.time, column[len(lengths) - 1 - int(np.argmax(lengths[::-1]))].as_py())
        for zone in (None, "UTC"):
            try:
                return _seconds(column.cast(pa.timestamp("ns", zone))), clock
            except pa.ArrowInvalid:  # some row is no such time
                continue
    elif not _are_read_here(form):
        try:
            parsed = pc.call_function("strptime", [column], pc.StrptimeOptions(form, "s"))
            return _seconds(parsed), Clock(table.time, form)
        except pa.ArrowInvalid:  # Python tells which
            pass
    seconds, offset, zones = [], None, set()
    for text in column.to_pylist():
        try:
            when = datetime.fromisoformat(text) if form is None else datetime.strptime(text, form)
        except ValueError:
            wanted = form or "2026-01-31 13:00:00"
            raise UserError(
                f"data.path={table.path}: column {table.time} holds {text!r}, which is no time like {wanted}; set "
                "data.time_format, as in data.time_format='%d/%m/%Y'"
            ) from None
        zones.add(when.tzinfo is None)
        if when.tzinfo is not None:
            offset = int(cast("timedelta", when.utcoffset()).total_seconds())
            when = when.astimezone(UTC).replace(tzinfo=None)
        # Floor, and not int, which would round times before 1970 up.
        seconds.append(math.floor((when - EPOCH).total_seconds()))
    if len(zones) > 1:
        raise UserError(
            f"data.path={table.path}: column {table.time} has times with a time zone and others without; write all "
            "alike"
        )
    return np.array(seconds, dtype=np.int64), clock if form is None else Clock(table.time, form, offset)
