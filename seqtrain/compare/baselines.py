"""What runs are held against, beside each other: predictors that know little, measured on the same text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqtrain.compare.entries import Entry, Mode, number
from seqtrain.compare.guard import Group
from seqtrain.compare.variants import Variant
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


def standing(value: float | None, entries: Sequence[Entry], metric: str, mode: Mode) -> tuple[list[str], list[str]]:
    """The baselines that a value of a metric is better than, and those that it is not, such as `bigram (2.51)`."""
    better, rest = [], []
    for baseline in baselines(entries):
        known = baseline["values"].get(metric)
        if known is None or value is None:
            continue
        words = f"{baseline['name']} ({known:.4g})"
        # An equal number is no better: who always gives one answer has the accuracy of that answer.
        is_better = value < known
        if mode == "max":
            is_better = value > known
        if is_better:
            better.append(words)
        else:
            rest.append(words)
    return better, rest


def standing_words(value: float | None, entries: Sequence[Entry], metric: str, mode: Mode) -> str:
    """The same as a clause; empty where no baseline is kept."""
    better, rest = standing(value, entries, metric, mode)
    parts = []
    if rest:
        parts.append(f"not better than {', '.join(rest)}")
    if better:
        parts.append(f"better than {', '.join(better)}")
    return "; ".join(parts)


def baseline_caveats(group: Group, ranked: Sequence[Variant]) -> list[str]:
    """A sentence where the best variant is no better than what knows little: then all of them learnt little."""
    valued = [variant for variant in ranked if variant.values]
    # Of other splits no baselines are kept.
    if group.split != "validation" or group.refusal or not valued:
        return []
    best = valued[0]
    rest = standing(best.mean, best.entries, group.metric, group.mode)[1]
    if not rest:
        return []
    return [f"no variant is better than {', '.join(rest)}, on the same text: the best is {best.name} ({best.mean:.4g})"]


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
