"""What can be asked of each run by a key: to choose runs, to sort them, to show them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

from seqtrain.compare.entries import Entry, short_names
from seqtrain.errors import UserError, did_you_mean

FIGURES: dict[str, Callable[[Entry], Any]] = {
    "name": lambda entry: entry.name,
    "label": lambda entry: entry.label,
    "sweep": lambda entry: entry.sweep,
    "status": lambda entry: entry.status,
    "reason": lambda entry: entry.reason,
    "steps": lambda entry: entry.cost("steps"),
    "tokens": lambda entry: entry.cost("tokens"),
    "flops": lambda entry: entry.cost("flops"),
    "seconds": lambda entry: entry.cost("seconds"),
    "tokens_per_second": lambda entry: entry.speed,
    "parameters": lambda entry: entry.parameters,
}
"""What every run has beside its settings and its metrics."""


def value(entry: Entry, key: str) -> Any:
    """A figure, a setting by its whole key, or a final metric of validation; None where the run has none."""
    if key in FIGURES:
        return FIGURES[key](entry)
    return entry.settings[key] if key in entry.settings else entry.metric(key)


def resolved(entries: Sequence[Entry], key: str, asked: str) -> str:
    """The whole key that `key`, a last word perhaps, stands for; UserError, about what was `asked`, where it is
    unknown."""
    settings = list(dict.fromkeys(key for entry in entries for key in entry.settings))
    metrics = [name for entry in entries for name in entry.metrics]
    known = {key: key for key in (*settings, *metrics, *FIGURES)}
    known |= {word: key for key, word in short_names(settings).items() if word not in known}
    if key not in known:
        ends = ", ".join(whole for whole in settings if whole.endswith(f".{key}"))
        remedy = f"; say which: {ends}" if ends else did_you_mean(key, known)
        raise UserError(f"{asked}: no run has {key}{remedy}")
    return known[key]


def chosen(entries: Sequence[Entry], conditions: Sequence[str]) -> list[Entry]:
    """The entries that meet all of `key=value` conditions; a value may be a list by commas, or a pattern with *."""
    kept = list(entries)
    for condition in conditions:
        key, equals, wanted = condition.partition("=")
        if not equals:
            raise UserError(f"--where {condition}: expected KEY=VALUE, such as model=lstm")
        whole = resolved(entries, key, f"--where {condition}")
        kept = [entry for entry in kept if _meets(value(entry, whole), wanted)]
    if not kept:
        raise UserError(f"--where {' '.join(conditions)}: none of {len(entries)} runs is so")
    return kept


def ordered(entries: Sequence[Entry], of: Callable[[Entry], Any], *, descending: bool) -> list[Entry]:
    """The entries by what `of` gives of each; those of which that is None last."""
    having = [entry for entry in entries if of(entry) is not None]
    lacking = [entry for entry in entries if of(entry) is None]
    return sorted(having, key=lambda entry: _rank(of(entry)), reverse=descending) + lacking


def written(found: Any) -> str:
    """A value as the command line writes it."""
    if found is None or isinstance(found, bool):
        return {None: "null", True: "true", False: "false"}[found]
    return str(found).replace("'", "").replace(" ", "") if isinstance(found, list) else str(found)


def _meets(found: Any, wanted: str) -> bool:
    text = written(found)
    return text == wanted or any(
        fnmatch.fnmatchcase(text, pattern) or _equal(found, pattern) for pattern in wanted.split(",")
    )


def _equal(found: Any, pattern: str) -> bool:
    """Whether both are the same number: 1e-3 is 0.001."""
    try:
        return not isinstance(found, bool) and float(found) == float(pattern)
    except (TypeError, ValueError):
        return False


def _rank(found: Any) -> tuple[bool, Any]:
    is_number = isinstance(found, int | float)
    return not is_number, found if is_number else str(found)
