"""Reading of one line of metrics.jsonl, or of one value of summary.json."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from seqtrain.files.checked import loads_unicode, open_checked

RESUMED = "resumed_from"
LONGEST = 1 << 20  # bytes of a line of metrics.jsonl
NOT_FINITE = ("nan", "inf", "-inf")  # strings for these numbers in metrics.jsonl and summary.json

OF_THE_CLOCK = ("time", "seconds", "tokens_per_second")


def of_the_machine(name: str) -> bool:
    """Return True if an entry of a record depends on clock or machine: equal runs may differ in it."""
    return name in OF_THE_CLOCK or name.startswith("system/")


def ends_line(path: Path) -> bool:
    """Return True if the last line of a file is complete."""
    with open_checked(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `line`; None if it is incomplete, empty, or not Unicode."""
    if not line.startswith(b"{"):  # a sparse file may have gigabytes of zeros, which JSON parses slowly
        return None
    try:
        record = loads_unicode(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    # Callers compare these two with ints.
    if not isinstance(record.get("step", 0), int) or not isinstance(record.get(RESUMED, 0), int):
        return None
    return numbers(record)


def numbers(value: Any) -> Any:
    """Return `value` with the strings nan, inf and -inf converted to numbers."""
    if isinstance(value, dict):
        return {key: numbers(below) for key, below in value.items()}
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    return value
