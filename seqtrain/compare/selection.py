"""What can be asked of each run by a key: to choose runs, to sort them, to show them."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

from seqtrain.compare.entries import Entry, short_names
from seqtrain.errors import UserError, did_you_mean

T = TypeVar("T")
# What every run has beside its settings and its metrics.
FIGURES: dict[str, Callable[[Entry], Any]] = {
    "name": attrgetter("name"),
    "label": attrgetter("label"),
    "sweep": attrgetter("sweep"),
    "status": attrgetter("status"),
    "reason": attrgetter("reason"),
    "steps": methodcaller("cost", "steps"),
    "tokens": methodcaller("cost", "tokens"),
    "flops": methodcaller("cost", "flops"),
    "seconds": methodcaller("cost", "seconds"),
    "tokens_per_second": attrgetter("speed"),
    "parameters": attrgetter("parameters"),
}


def value(entry: Entry, key: str) -> Any:
    """A figure, a setting by its whole key, or a final metric of validation; None where the run has none."""
    if key in FIGURES:
        return FIGURES[key](entry)
    return entry.settings[key] if key in entry.settings else entry.metric(key)


def resolved(entries: Sequence[Entry], key: str, option: str) -> str:
    """The whole key that `key`, a last word perhaps, stands for.

    Raises:
        UserError: where it is unknown, about the command's `option` that gave it.
    """
    settings: dict[str, None] = {}  # each once, in the order of the runs
    metrics: dict[str, None] = {}
    for entry in entries:
        settings |= dict.fromkeys(entry.settings)
        metrics |= dict.fromkeys(entry.metrics)
    known = {whole: whole for whole in (*settings, *metrics, *FIGURES)}
    for whole, word in short_names(list(settings)).items():
        known.setdefault(word, whole)  # what is a whole key itself is never short for another
    if key not in known:
        ends = ", ".join(whole for whole in settings if whole.endswith(f".{key}"))
        remedy = f"; say which: {ends}" if ends else did_you_mean(key, known)
        raise UserError(f"{option}: no run has {key}{remedy}")
    return known[key]


def chosen(entries: Sequence[Entry], conditions: Sequence[str]) -> list[Entry]:
    """The entries that meet all of `key=value` conditions; a value may be a list by commas, or a pattern with *."""
    kept = list(entries)
    for condition in conditions:
        key, equals, wanted = condition.partition("=")
        if not equals:
            raise UserError(f"--where {condition}: expected KEY=VALUE, such as model=lstm")
        # Among all entries: whether a key is known must not depend on the conditions before it.
        whole = resolved(entries, key, f"--where {condition}")
        kept = [entry for entry in kept if _meets(value(entry, whole), wanted)]
    if not kept:
        raise UserError(f"--where {' '.join(conditions)}: none of {len(entries)} runs is so")
    return kept


def ordered(items: Sequence[T], values: Sequence[Any], *, descending: bool) -> list[T]:
    """Runs or variants by their values; those without one (None) last, whichever way the others go."""
    having, lacking = [], []
    for item, found in zip(items, values, strict=True):
        if found is None:
            lacking.append(item)
        else:
            having.append((_rank(found), item))
    having.sort(key=lambda ranked: ranked[0], reverse=descending)
    return [item for _, item in having] + lacking


def written(found: Any) -> str:
    """A value as the command line writes it."""
    if found is None or isinstance(found, bool):
        return json.dumps(found)
    if isinstance(found, list):
        return str(found).replace("'", "").replace(" ", "")
    return str(found)


def _meets(found: Any, wanted: str) -> bool:
    """Whether a value is one of those that a condition lists."""
    text = written(found)
    if text == wanted:  # first: a list holds commas itself
        return True
    return any(fnmatch.fnmatchcase(text, pattern) or _equal(found, pattern) for pattern in wanted.split(","))


def _equal(found: Any, pattern: str) -> bool:
    """Whether both are the same number: 1e-3 is 0.001."""
    try:
        return not isinstance(found, bool) and float(found) == float(pattern)
    except (TypeError, ValueError):
        return False


def _rank(found: Any) -> tuple[bool, Any]:
    """Numbers before texts, which cannot be compared with them."""
    is_number = isinstance(found, int | float)
    return not is_number, found if is_number else str(found)
