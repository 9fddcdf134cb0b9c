"""What runs are held against, beside each other: predictors that know little, measured on the same text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqtrain.compare.entries import Entry, Mode, number
from seqtrain.compare.folds import FEWEST, are_folds, half_width, tested_to_trained
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
    """A sentence where the best variant is no better than what knows little: then all of them learnt little.

    Of folds a sentence for each baseline, with the difference on the same folds.
    """
    valued = [variant for variant in ranked if variant.values]
    if group.refusal or not valued:
        return []
    best = valued[0]
    if are_folds([best]):
        return _on_the_same_folds(group, best)
    rest = standing(best.mean, best.entries, group.metric, group.mode)[1]
    if not rest:
        return []
    return [f"no variant is better than {', '.join(rest)}, on the same text: the best is {best.name} ({best.mean:.4g})"]


def _on_the_same_folds(group: Group, best: Variant) -> list[str]:
    """A sentence for each baseline: its mean over the folds of the best variant, and how far it is from that one."""
    values: dict[str, list[float]] = {}
    differences: dict[str, list[float]] = {}
    for entry, value in zip(best.counted, best.values, strict=True):
        for name, kept in _kept(entry):
            if group.metric in kept:
                values.setdefault(name, []).append(kept[group.metric])
                differences.setdefault(name, []).append(value - kept[group.metric])
    found = []
    for name, own in values.items():
        count = len(own)
        # Of some folds only, its mean would be held against that of others.
        if count < max(FEWEST, len(best.values)):
            continue
        mean = statistics.fmean(differences[name])
        ratio = tested_to_trained(best.counted)
        half = half_width(statistics.stdev(differences[name]), count, ratio, len(values))
        side = "better" if (mean < 0) == (group.mode == "min") else "worse"
        apart = "" if abs(mean) > half else ", not told apart from chance"
        found.append(
            f"{printable(name.replace('_', ' '))} has {statistics.fmean(own):.4g} on the same {count} folds: "
            f"{best.name} is {side} by {abs(mean):.2g} (95 % interval of the difference {mean - half:.2g} to "
            f"{mean + half:.2g}{apart})"
        )
    return found


def _knows(said: Any) -> str:
    """What a baseline knows, in words; empty where the task does not say."""
    if not isinstance(said, Mapping) or not isinstance(said.get("knows"), str):
        return ""
    return printable(said["knows"])


def _kept(entry: Entry) -> Iterable[tuple[str, dict[str, float]]]:
    """The name of each baseline of what is compared, and its numbers; a stranger may have written the file."""
    kept: Any = entry.summary.baselines.get("validation")
    if entry.evaluation is not None:
        kept = entry.evaluation.baselines
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
