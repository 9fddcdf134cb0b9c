"""What runs are held against beside each other: predictors that know little, measured on the same text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqtrain.compare.entries import Entry, number
from seqtrain.terminal import printable


def baselines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The baselines that the runs of a group have kept, each once.

    Returns:
        `name`, what it `knows`, `values` by metric, and how many `runs` have it: runs of other training text have
        other figures of a baseline, and these stand for themselves.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        words = entry.summary.baseline_words
        for name, values in _kept(entry):
            # By its numbers, too: the same name may stand for another thing.
            key = f"{name} {sorted(values.items())}"
            if key not in found:
                found[key] = {
                    "name": printable(name.replace("_", " ")),
                    "knows": _knows(words.get(name)),
                    "values": values,
                    "runs": 0,
                }
            found[key]["runs"] += 1
    return list(found.values())


def _knows(said: Any) -> str:
    """What a baseline knows, in words; empty where the task does not say."""
    if not isinstance(said, Mapping) or not isinstance(said.get("knows"), str):
        return ""
    return printable(said["knows"])


def _kept(entry: Entry) -> Iterable[tuple[str, dict[str, float]]]:
    """The name of each baseline of validation, and its numbers; a stranger may have written the file."""
    kept = entry.summary.baselines.get("validation")
    if not isinstance(kept, Mapping):
        return
    for name, values in kept.items():
        if not isinstance(values, Mapping):
            continue
        numbers = {}
        for metric, value in values.items():
            known = number(value)
            if known is not None and known == known:  # not nan
                numbers[str(metric)] = known
        if numbers:
            yield str(name), numbers
