"""Detection of runs whose files contradict each other: a file that was changed after the run holds no result."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqtrain.files.atomic import exists, reading
from seqtrain.files.checked import open_checked
from seqtrain.files.untrusted import FILES
from seqtrain.runs.directory import METRICS, RESUMED
from seqtrain.runs.identity import digest
from seqtrain.runs.records import parsed
from seqtrain.runs.summary import Summary

TAIL = 1 << 16  # bytes at the end of the record, where the last validation stands: a table reads no more of it
MAX_NUMBER = 1e305
SAME = 1e-9  # of a number's size: a file written by another tool may round its last digits


def altered(path: Path, config: dict[str, Any], summary: Summary) -> str:
    """Return the reason why a finished run's figures cannot be trusted; empty if its files agree.

    Args:
        path: the run's directory.
        config: the contents of config.yaml.
        summary: the contents of summary.json.
    """
    if summary.identity not in (None, digest(config)):
        return "config.yaml was changed after the training, and no longer says what was trained"
    validation = summary.metrics.get("validation")
    last = _last_validation(path)
    if not isinstance(validation, Mapping) or last.get("step") != summary.steps:
        return ""  # the record does not reach the end, and so it has no second opinion
    for name, value in validation.items():
        recorded = last.get(f"validation/{name}")
        if _are_unlike(value, recorded):
            return f"summary.json says {name} {value:.6g}, and metrics.jsonl {recorded:.6g}: one of them was changed"
    return ""


def _are_unlike(one: Any, other: Any) -> bool:
    """Return True if both values are numbers and differ."""
    for value in (one, other):
        # What is no number, or beyond all that a run measures, does not count in any case.
        if not isinstance(value, int | float) or not abs(value) < MAX_NUMBER:
            return False
    return not math.isclose(one, other, rel_tol=SAME, abs_tol=SAME)


def _last_validation(path: Path) -> dict[str, Any]:
    """Return the last validation record that no later resume overwrote; empty if the end of the file has none."""
    file_path = path / METRICS
    if not exists(file_path):
        return {}
    with reading(file_path), open_checked(file_path, FILES[METRICS]) as file:
        start = max(file.seek(0, os.SEEK_END) - TAIL, 0)
        file.seek(start)
        lines = file.read(TAIL).splitlines()
    earliest = math.inf  # step from which one of the later resumes began
    for line in reversed(lines[1:] if start else lines):  # the first may be half a line
        record = parsed(line) or {}
        if RESUMED in record:
            earliest = min(earliest, record[RESUMED])
        elif any(key.startswith("validation/") for key in record) and record.get("step", 0) <= earliest:
            return record
    return {}
