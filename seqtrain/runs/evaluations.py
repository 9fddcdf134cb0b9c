"""evaluations.jsonl: results of `seqtrain evaluate --split test` on a run, one line each, append-only."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from seqtrain.files.atomic import exists, plain_json, reading
from seqtrain.files.checked import open_append, open_checked
from seqtrain.files.untrusted import FILES
from seqtrain.runs.summary import LONGEST, ends_line, parsed

EVALUATIONS = "evaluations.jsonl"
SPLITS = ("train", "validation", "test")
WeightsOf = Literal["best", "last"]  # the checkpoint that was measured
HASH = re.compile(r"[0-9a-f]{32}")
COMMIT = re.compile(r"[0-9a-f]{40,64}[+?]?")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a split: metrics, weights, method and time."""

    split: str
    checkpoint: WeightsOf
    step: int  # of the weights
    metrics: dict[str, float]
    hash: str  # of the split's text
    date: str  # in ISO 8601, with time zone
    commit: str | None = None  # of the checkout in which it was measured
    options: dict[str, Any] = field(default_factory=dict)  # of the command, and how the text was read
    leak: dict[str, Any] | None = None  # share of the split that occurs in the training text; None: unknown
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)  # baseline -> metric -> value
    test_set: str | None = None  # one of several, by its name in `data.test_paths`


@dataclass(frozen=True)
class Kept:
    """Contents of a run's file: the evaluations, oldest first, and the number of unreadable lines."""

    evaluations: tuple[Evaluation, ...] = ()
    unreadable: int = 0  # incomplete lines, and lines that `evaluate` did not write

    def looks(self, split: str = "test", test_set: str | None = None) -> int:
        """Return how often the split was evaluated. `test_set`: name of one of several test sets."""
        return len(self.of(split, test_set))

    def newest(self, split: str, checkpoint: str, test_set: str | None = None) -> Evaluation | None:
        """Return the newest evaluation of a split with the weights of this checkpoint, or None."""
        for evaluation in reversed(self.of(split, test_set)):
            if evaluation.checkpoint == checkpoint:
                return evaluation
        return None

    def of(self, split: str, test_set: str | None = None) -> list[Evaluation]:
        """Return the evaluations of a split, oldest first; `test_set=None` leaves out those of named test sets."""
        return [one for one in self.evaluations if (one.split, one.test_set) == (split, test_set)]


def keep(run: Path, evaluation: Evaluation) -> None:
    """Append an evaluation to the run's file in one write, so that a kill leaves the earlier lines intact.

    Args:
        run: Run directory.
        evaluation: The evaluation to append.

    Raises:
        OSError: The directory cannot be written, or its disk is full.
        UserError: The file is a link or otherwise not a plain file.
    """
    path = run / EVALUATIONS
    line = plain_json(asdict(evaluation)).encode() + b"\n"
    # An incomplete last line becomes a separate line, which the reader skips and counts.
    if exists(path) and path.stat().st_size and not ends_line(path):
        line = b"\n" + line
    # No lock: the run may be training now, and a single appended write may be cut off but never interleaved.
    with open_append(path) as file:
        if file.write(line) != len(line):
            raise OSError(f"{path}: the disk is full")
        os.fsync(file.fileno())


def kept(run: Path) -> Kept:
    """Return the evaluations of a run; empty if it was never evaluated.

    Args:
        run: Run directory; the file may be untrusted.

    Raises:
        UserError: The file cannot be read, is larger than a run can write it, or is not a plain file.
    """
    path = run / EVALUATIONS
    if not exists(path):
        return Kept()
    found: list[Evaluation] = []
    unreadable = 0
    with reading(path), open_checked(path, FILES[EVALUATIONS]) as file:
        for line in iter(lambda: file.readline(LONGEST), b""):
            # One bad line must not hide the evaluations before and after it.
            evaluation = _evaluation(parsed(line) or {})
            if evaluation is None:
                unreadable += bool(line.strip())
            else:
                found.append(evaluation)
    return Kept(tuple(found), unreadable)


def _evaluation(record: Mapping[str, Any]) -> Evaluation | None:
    """Return the evaluation in a line; None if it is not in the form that `evaluate` writes."""
    metrics, options, step = record.get("metrics"), record.get("options"), record.get("step")
    leak = record.get("leak")
    if not isinstance(metrics, dict) or not isinstance(options, dict) or not _are_words_sound(record):
        return None
    if type(step) is not int or step < 0:  # by type and not isinstance, since True is an int
        return None
    beside = record.get("baselines")
    baselines = {}
    for name, values in (beside if isinstance(beside, dict) else {}).items():
        if isinstance(values, dict):
            baselines[name] = _numbers(values)
    return Evaluation(
        split=record["split"],
        checkpoint=record["checkpoint"],
        step=step,
        metrics=_numbers(metrics),
        hash=record["hash"],
        date=record["date"],
        commit=record.get("commit"),
        options=options,
        leak=leak if isinstance(leak, dict) else None,
        baselines=baselines,
        test_set=record.get("test_set"),
    )


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are finite numbers."""
    found = {}
    for name, value in values.items():
        if type(value) in (int, float) and math.isfinite(value):  # by type, since True is an int
            found[name] = float(value)
    return found


def _are_words_sound(record: Mapping[str, Any]) -> bool:
    """Return True if the strings of a line have the form that `evaluate` writes."""
    commit, test_set = record.get("commit"), record.get("test_set")
    return (
        record.get("split") in SPLITS
        and record.get("checkpoint") in get_args(WeightsOf)
        and _is_match(HASH, record.get("hash"))
        and (commit is None or _is_match(COMMIT, commit))
        and _is_date(record.get("date"))
        and (test_set is None or isinstance(test_set, str))
    )


def _is_match(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_date(value: Any) -> bool:
    """Return True if the value is a time in ISO format with a time zone."""
    if not isinstance(value, str):
        return False
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
