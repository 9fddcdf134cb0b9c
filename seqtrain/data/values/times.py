"""Times of a table as seconds since 1970, or as steps."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from seqtrain.data.values.tables import Layout
from seqtrain.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

FAST = set("YmdHMSyIpbB")  # what pyarrow reads of a time as Python does
EPOCH = datetime(1970, 1, 1)


def are_read_here(time_format: str) -> bool:
    """Whether times of that form are read by Python, which knows more forms than pyarrow and is slower."""
    parts = time_format.replace("%%", "").split("%")[1:]
    return not all(part[:1] in FAST for part in parts) or "%" not in time_format


def in_seconds(table: Layout, column: pa.Array) -> tuple[Int[np.ndarray, " n"], bool]:
    """Seconds since 1970, or steps; whether they are dates. UserError where a row has no time, or one that is none."""
    import pyarrow as pa

    if column.null_count:
        raise UserError(f"data.path={table.path}: column {table.time} has a row without a time; give it one")
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _parsed(table, column), True
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _seconds(column), True
    if pa.types.is_integer(kind):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False), False
    raise UserError(f"data.path={table.path}: column {table.time} holds {kind}; expected dates, or whole numbers")


def _seconds(column: pa.Array) -> Int[np.ndarray, " n"]:
    import pyarrow as pa

    # Towards the past, also before 1970.
    whole = column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[whole.type.unit]
    return whole.cast(pa.int64()).to_numpy(zero_copy_only=False) // units


def _parsed(table: Layout, column: pa.Array) -> Int[np.ndarray, " n"]:
    """Texts as seconds since 1970."""
    import pyarrow as pa

    if table.time_format is None:
        for zone in (None, "UTC"):
            try:
                return _seconds(column.cast(pa.timestamp("ns", zone)))
            except pa.ArrowInvalid:  # some row is no such time
                continue
    seconds, zones = [], set()
    for text in column.to_pylist():
        try:
            when = _when(text, table.time_format)
        except ValueError:
            wanted = table.time_format or "2026-01-31 13:00:00"
            raise UserError(
                f"data.path={table.path}: column {table.time} holds {text!r}, which is no time like {wanted}; set "
                "data.time_format, as in data.time_format='%d/%m/%Y'"
            ) from None
        zones.add(when.tzinfo is None)
        if when.tzinfo is not None:
            when = when.astimezone(UTC).replace(tzinfo=None)
        # Floor, and not int, which would round times before 1970 up.
        seconds.append(math.floor((when - EPOCH).total_seconds()))
    if len(zones) > 1:
        raise UserError(
            f"data.path={table.path}: column {table.time} has times with a time zone and others without; write all "
            "alike"
        )
    return np.array(seconds, dtype=np.int64)


def _when(text: Any, time_format: str | None) -> datetime:
    if time_format is not None:
        return datetime.strptime(text, time_format)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.combine(date.fromisoformat(text), datetime.min.time())
