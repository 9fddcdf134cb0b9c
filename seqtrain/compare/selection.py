"""Values of runs by key: to choose runs, to sort them, to show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

from seqtrain.compare.entries import Entry, short_names
from seqtrain.compare.filters import parsed
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


def words(entries: Sequence[Entry]) -> dict[str, str]:
    """Every word by which a key may be called, and the whole key: itself, or the last word of one setting alone."""
    settings: dict[str, None] = {}  # each once, in the order of the runs
    metrics: dict[str, None] = {}
    for entry in entries:
        settings |= dict.fromkeys(entry.settings)
        metrics |= dict.fromkeys(entry.metrics)
    known = {whole: whole for whole in (*settings, *metrics, *FIGURES)}
    for whole, word in short_names(list(settings)).items():
        known.setdefault(word, whole)  # what is a whole key itself is never short for another
    return known


def resolved(entries: Sequence[Entry], key: str, option: str) -> str:
    """The whole key that `key`, a last word perhaps, stands for.

    Raises:
        UserError: where it is unknown, about the command's `option` that gave it.
    """
    known = words(entries)
    if key not in known:
        ends = ", ".join(whole for whole in known if whole.endswith(f".{key}"))
        remedy = f"; say which: {ends}" if ends else did_you_mean(key, known)
        raise UserError(f"{option}: no run has {key}{remedy}")
    return known[key]


def chosen(entries: Sequence[Entry], conditions: Sequence[str]) -> list[Entry]:
    """Return the entries that meet all conditions, such as `model=lstm,gr*`, `lr>0.003` and `seed!=2`.

    Raises:
        UserError: a condition cannot be parsed, or no run could meet it; or no run is left.
    """
    kept = list(entries)
    for text in conditions:
        condition = parsed(text, "--where ")
        # Among all entries: whether a key is known must not depend on the conditions before it.
        whole = resolved(entries, condition.key, f"--where {text}")
        condition.check([value(entry, whole) for entry in entries], "--where ")
        kept = [entry for entry in kept if condition.holds(value(entry, whole))]
    if not kept:
        raise UserError(f"--where {' '.join(conditions)}: none of {len(entries)} runs is so")
    return kept


def ordered(items: Sequence[T], values: Sequence[Any], *, descending: bool) -> list[T]:
    """Return runs or variants sorted by their values; those without one (None) come last in either direction."""
    having, lacking = [], []
    for item, found in zip(items, values, strict=True):
        if found is None:
            lacking.append(item)
        else:
            having.append((_rank(found), item))
    having.sort(key=lambda ranked: ranked[0], reverse=descending)
    return [item for _, item in having] + lacking


def _rank(found: Any) -> tuple[bool, Any]:
    """Return a sort key: numbers come before texts, which cannot be compared with them."""
    is_number = isinstance(found, int | float)
    return not is_number, found if is_number else str(found)
