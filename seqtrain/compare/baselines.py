"""Baselines of runs: simple predictors that were measured on the same data, compared with the best variant.

With folds, the comparison is fold by fold, like that of two variants.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from seqtrain.compare.entries import Entry, Mode, number
from seqtrain.compare.folds import FEWEST, are_folds, half_width, tested_to_trained
from seqtrain.compare.groups import Group
from seqtrain.compare.settings import deciding
from seqtrain.compare.variants import Variant
from seqtrain.terminal import printable

MIN_SPREAD = 1e-9  # relative to the values: a smaller spread is rounding
REMEDY = "`seqtrain evaluate RUN --split test --baselines` measures them"
OfFolds = dict[Any, float]  # a value for each fold


@dataclass(frozen=True)
class FoldBaseline:
    """A baseline on the folds of the best variant, and how much better that variant is."""

    name: str
    folds: int  # folds that both have
    needed: int  # folds that the variant has
    mean: float
    sd: float | None
    difference: float  # above 0 if the variant is better
    low: float | None = None  # lower end of the interval; None if the spread is unknown
    high: float | None = None


def baselines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the baselines that the runs of a group have recorded, each once.

    Returns:
        `name`, what it `knows`, `values` by metric, and the number of `runs` that have it. A baseline has other values
        for runs with other training text, so these get a separate row. For folds, the values are means.
    """
    sets: dict[str, list[Entry]] = {}  # the folds of a variant together, every other run by itself
    for entry in entries:
        if entry.fold is None:
            sets[str(id(entry))] = [entry]
        elif entry.finished:
            sets.setdefault(repr(sorted(deciding(entry).items(), key=repr)), []).append(entry)
    found: dict[str, dict[str, Any]] = {}
    for runs in sets.values():
        kept = [dict(kept_baselines(entry)) for entry in runs]
        for name in dict.fromkeys(name for each in kept for name in each):
            measured = [each[name] for each in kept if name in each]
            # A mean over some folds must not be compared with a mean over all of them.
            if len(measured) < len(runs):
                continue
            metrics = [metric for metric in measured[0] if all(metric in one for one in measured)]
            values = {metric: statistics.fmean(one[metric] for one in measured) for metric in metrics}
            described: Any = runs[0].summary.baseline_words.get(name)
            knows = described.get("knows") if isinstance(described, Mapping) else None
            words = {"name": _shown(name), "knows": printable(knows) if isinstance(knows, str) else ""}
            # By name and values: one name may be used for different baselines.
            one = found.setdefault(f"{name} {sorted(values.items())}", words | {"values": values, "runs": 0})
            one["runs"] += len(runs)
    return list(found.values())


def kept_baselines(entry: Entry) -> Iterable[tuple[str, dict[str, float]]]:
    """Yield the name and the values of each baseline of the compared split; the file is untrusted."""
    kept: Any = entry.summary.baselines.get("validation")
    if entry.evaluation is not None:
        kept = entry.evaluation.baselines
    for name, values in kept.items() if isinstance(kept, Mapping) else ():
        numbers = {}
        for metric, value in values.items() if isinstance(values, Mapping) else ():
            known = number(value)
            if known is not None:
                numbers[str(metric)] = known
        if numbers:
            yield str(name), numbers


def standing(value: float | None, entries: Sequence[Entry], metric: str, mode: Mode) -> tuple[list[str], list[str]]:
    """Return the baselines that a value beats, and those that it does not beat, such as `bigram (2.51)`."""
    better, rest = [], []
    for baseline in baselines(entries):
        known = baseline["values"].get(metric)
        if known is None or value is None:
            continue
        # Equal is not better: a model that always gives the most frequent answer equals that baseline.
        is_better = value > known if mode == "max" else value < known
        (better if is_better else rest).append(f"{baseline['name']} ({known:.4g})")
    return better, rest


def standing_words(value: float | None, entries: Sequence[Entry], metric: str, mode: Mode) -> str:
    """Return the result of `standing` as a clause; empty if no baseline is recorded."""
    better, rest = standing(value, entries, metric, mode)
    parts = []
    if rest:
        parts.append(f"not better than {', '.join(rest)}")
    if better:
        parts.append(f"better than {', '.join(better)}")
    return "; ".join(parts)


def baseline_caveats(group: Group, ranked: Sequence[Variant]) -> list[str]:
    """Compare the best variant with the baselines: if it is not better, no variant has learnt much.

    Args:
        group: the runs of a verdict.
        ranked: its variants, the best first.

    Returns:
        Sentences. For folds, one for each baseline. For test, one on the best variant and all baselines. For
        validation, one only if the best variant is not better.
    """
    best = _best(group, ranked)
    if best is None:
        return []
    if _is_paired(best):
        return _fold_caveats(group, best, _over_folds(group, best, ranked))
    rest = standing(best.mean, best.entries, group.metric, group.mode)[1]
    if rest:
        rest_words = ", ".join(rest)
        return [f"no variant is better than {rest_words}, on the same data: the best is {best.name} ({best.mean:.4g})"]
    words = standing_words(best.mean, best.entries, group.metric, group.mode)
    return [f"{best.name} ({best.mean:.4g}) is {words}, on the same data"] if group.split == "test" and words else []


def baseline_records(group: Group, ranked: Sequence[Variant]) -> list[dict[str, Any]]:
    """Return a group's baselines in its metric as plain values: name, mean, and with folds also the comparison."""
    best = _best(group, ranked)
    if best is None:
        return []
    if _is_paired(best):
        return [asdict(each) for each in _over_folds(group, best, ranked)]
    found = []
    for baseline in baselines(group.entries):
        if group.metric in baseline["values"]:
            found.append({"name": baseline["name"], "mean": baseline["values"][group.metric], "runs": baseline["runs"]})
    return found


def _shown(name: str) -> str:
    return printable(name.replace("_", " "))


def _best(group: Group, ranked: Sequence[Variant]) -> Variant | None:
    """Return the best variant that has a value; None if nothing is concluded."""
    return None if group.refusal else next((variant for variant in ranked if variant.values), None)


def _is_paired(best: Variant) -> bool:
    # A single fold has no spread: it is treated like any single run.
    return len(best.values) >= FEWEST and are_folds([best])


def _over_folds(group: Group, best: Variant, ranked: Sequence[Variant]) -> list[FoldBaseline]:
    """Return the baselines of all variants on the folds of the best one; equal values are one baseline.

    Returns:
        The best variant's own baselines, then those of other variants that differ, as these may read other tokens:
        the variant has to beat the best baseline of all.
    """
    values = {entry.fold: value for entry, value in zip(best.counted, best.values, strict=True)}
    distinct: list[tuple[str, OfFolds]] = []
    names = []
    for variant in ranked:
        for name, figures in _by_name(variant, group.metric, values).items():
            if any(name == other and _are_alike(figures, known) for other, known in distinct):
                continue
            distinct.append((name, figures))
            names.append(_shown(name) + ("" if variant is best else f" (of the runs of {variant.name})"))
    sign = -1 if group.mode == "min" else 1
    found = []
    for name, (_, figures) in zip(names, distinct, strict=True):
        differences = [sign * (values[fold] - figure) for fold, figure in figures.items()]
        mean, count = statistics.fmean(differences), len(figures)
        sd = statistics.stdev(figures.values()) if count >= FEWEST else None
        one = FoldBaseline(name, count, len(values), statistics.fmean(figures.values()), sd, mean)
        # With too few folds, or without spread, there is no interval.
        if count == len(values) and statistics.stdev(differences) > MIN_SPREAD * max(map(abs, values.values())):
            # The interval holds for all baselines at once, since the reader looks at all of them.
            half = half_width(statistics.stdev(differences), count, tested_to_trained(best.counted), len(distinct))
            one = replace(one, low=mean - half, high=mean + half)
        found.append(one)
    return found


def _by_name(variant: Variant, metric: str, folds: Mapping[Any, float]) -> dict[str, OfFolds]:
    """Return the values of each baseline that the runs of a variant have recorded on these folds."""
    found: dict[str, OfFolds] = {}
    for entry in variant.counted:
        for name, kept in kept_baselines(entry) if entry.fold in folds else ():
            if metric in kept:
                found.setdefault(name, {})[entry.fold] = kept[metric]
    return found


def _are_alike(figures: OfFolds, known: OfFolds) -> bool:
    """Return True if every value of a baseline equals the other baseline's value on the same fold."""
    return all(fold in known and math.isclose(figure, known[fold], rel_tol=1e-9) for fold, figure in figures.items())


def _fold_caveats(group: Group, best: Variant, found: Sequence[FoldBaseline]) -> list[str]:
    if not found and group.split == "test":
        return [f"no baselines are recorded for these folds; {REMEDY}"]
    lines, unbeaten = [], []
    for one in found:
        if one.folds < one.needed:
            lines.append(
                f"{one.name} is known for {one.folds} of {one.needed} folds, so it is not compared with {best.name}"
            )
            continue
        lines.append(
            f"{one.name} has {one.mean:.4g} (sd {one.sd:.2g}) on the same {one.folds} folds: {_against(one, best)}"
        )
        if one.low is None or one.low <= 0:
            unbeaten.append(one.name)
    if unbeaten:
        lines.append(f"no variant is significantly better than {', '.join(unbeaten)}: the best is {best.name}")
    return lines


def _against(one: FoldBaseline, best: Variant) -> str:
    """Return a sentence that compares the best variant with a baseline."""
    size = abs(one.difference)
    side = "better" if one.difference > 0 else "worse"
    if one.low is None or one.high is None:
        if size <= MIN_SPREAD * max(map(abs, best.values)):
            return f"{best.name} is no better, the same on each fold"
        return f"{best.name} is {side} by {size:.2g} on every fold, so the spread is unknown"
    # The interval is for the named side, so that no sign has to be turned.
    low, high = (one.low, one.high) if one.difference > 0 else (-one.high, -one.low)
    apart = "" if low > 0 else ": no significant difference"
    return f"{best.name} is {side} by {size:.2g} (95 % interval {low:.2g} to {high:.2g}{apart})"
