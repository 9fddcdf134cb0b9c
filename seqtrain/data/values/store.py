"""Cache of a table of series as memory-mapped arrays, written block by block with checks of the order of rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from seqtrain.data.cache import durable, read_json
from seqtrain.data.values.blocks import Block, read_blocks
from seqtrain.data.values.series import Clock, Series
from seqtrain.data.values.tables import TableLayout
from seqtrain.errors import UserError


@dataclass
class _Found:
    """State of a table while its rows are written."""

    offsets: list[int] = field(default_factory=list)  # first row of each series
    names: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # the names as a set
    num_rows: int = 0
    last_time: int | None = None
    clock: Clock | None = None


def write(table: TableLayout, folder: Path) -> None:
    """Write a table as arrays into a folder of the cache.

    Raises:
        UserError: It has no rows, a value is not valid, times do not increase, or rows of a series are apart.
    """
    found = _Found()
    with durable(folder / "numbers.bin") as numbers, durable(folder / "times.bin") as times:
        for block in read_blocks(table):
            starts = _first_rows(table, found, block)
            _check_times(table, found, block, starts)
            _check_known(table, found, block)
            numbers.write(block.numbers.data)
            if block.times is not None:
                times.write(block.times.astype(np.int64).tobytes())
            found.num_rows += len(block.numbers)
            found.clock = block.clock
    if not found.num_rows:
        raise UserError(f"data.path={table.path}: has no row below its header")
    if table.id is None:
        found.names, found.offsets = [""], [0]
    about = {"offsets": [*found.offsets, found.num_rows], "names": found.names}
    about["clock"] = found.clock and asdict(found.clock)
    with durable(folder / "about.json") as file:
        file.write(json.dumps(about).encode())


def _first_rows(table: TableLayout, found: _Found, block: Block) -> list[int]:
    """Return the rows of a block where a new series begins; raise UserError if rows of a series are apart."""
    starts = []
    for name, row in zip(block.names or (), block.starts.tolist(), strict=True):
        if found.names and name == found.names[-1]:  # continues from the previous block
            continue
        if name in found.seen:
            raise UserError(
                f"data.path={table.path}: rows of series {name} are not consecutive; sort the file by "
                f"{table.id} and then by time"
            )
        found.names.append(name)
        found.seen.add(name)
        found.offsets.append(found.num_rows + row)
        starts.append(row)
    return starts


def _check_times(table: TableLayout, found: _Found, block: Block, starts: list[int]) -> None:
    """Raise UserError if a row of a series is not later than the one before it."""
    if block.times is None or not len(block.times):
        return
    last = block.times[0] - 1 if found.last_time is None else found.last_time
    step = np.diff(block.times, prepend=last)
    # Time may go back from one series to the next.
    step[starts] = 1
    if step.min() <= 0:
        row = int(np.argmax(step <= 0))
        how = "is earlier than the row before it"
        if step[row] == 0:
            how = "repeats the time of the row before it, to the second"
        remedy = "sort the rows by time, and keep one of each"
        if table.id is None:
            remedy += "; for several series, set data.id_column to the column of their names"
        raise UserError(f"data.path={table.path}: row {found.num_rows + row + 1:,} {how}; {remedy}")
    found.last_time = int(block.times[-1])


def _check_known(table: TableLayout, found: _Found, block: Block) -> None:
    """Raise UserError if a value of a known column is missing."""
    # A missing value is not replaced: the model would read a wrong value as known.
    absent = np.isnan(block.numbers[:, len(table.values) :]).any(1)
    if absent.any():
        row = found.num_rows + int(np.argmax(absent)) + 1
        raise UserError(
            f"data.path={table.path}: row {row:,} lacks a value of data.known_columns, which must have a value in "
            "each row"
        )


def read(table: TableLayout, folder: Path) -> Series:
    """Return the table in a folder of the cache; raise ValueError if it is damaged."""
    about = read_json(folder / "about.json")
    offsets = np.array(about["offsets"], dtype=np.int64)
    width = len(table.values) + len(table.known)
    numbers: np.ndarray = np.memmap(folder / "numbers.bin", dtype=np.float64, mode="r")
    # A cache that was copied or synced halfway has a short file.
    if len(numbers) != offsets[-1] * width:
        raise ValueError("damaged")
    numbers = numbers.reshape(-1, width)
    times = None
    if table.time is not None:
        times = np.memmap(folder / "times.bin", dtype=np.int64, mode="r")
        if len(times) != len(numbers):
            raise ValueError("damaged")
    count = len(table.values)
    return Series(
        values=numbers[:, :count],
        known=numbers[:, count:],
        times=times,
        offsets=offsets,
        names=tuple(about["names"]),
        columns=table.values,
        known_columns=table.known,
        clock=about["clock"] and Clock(**about["clock"]),
    )
