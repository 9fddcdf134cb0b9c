"""Baselines in a verdict: with folds, a baseline is compared with the best variant fold by fold, like two variants."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from seqtrain.compare.baselines import baselines, kept_baselines, standing, standing_words
from seqtrain.compare.folds import FEWEST, are_folds, half_width, tested_to_trained
from seqtrain.compare.guard import Group
from seqtrain.compare.variants import Variant
from seqtrain.terminal import printable

MIN_SPREAD = 1e-9  # of the values' size: below it lies rounding
REMEDY = "`seqtrain evaluate RUN --split test --baselines` measures them"
OfFolds = dict[Any, float]  # a figure by the fold it is of


@dataclass(frozen=True)
class FoldBaseline:
    """A baseline on the folds of the best variant, and how much better that variant is."""

    name: str
    folds: int  # that both have
    needed: int  # that the variant has
    mean: float
    sd: float | None
    difference: float  # above 0 where the variant is better
    low: float | None = None  # of the interval; None where nothing tells a difference from chance
    high: float | None = None

    @property
    def is_whole(self) -> bool:
        """True if the baseline is known on each fold."""
        return self.folds == self.needed


def baseline_caveats(group: Group, ranked: Sequence[Variant]) -> list[str]:
    """Return sentences that compare the best variant with baselines: if it is no better, all variants learnt little.

    Args:
        group: the runs of a verdict.
        ranked: its variants, the best first.

    Returns:
        Sentences. For folds, one for each baseline. For test, one on the best variant and all baselines. For
        validation, one if the best variant is not better.
    """
    best = _best(group, ranked)
    if best is None:
        return []
    if _is_paired(best):
        return _fold_caveats(group, best, over_folds(group, ranked))
    rest = standing(best.mean, best.entries, group.metric, group.mode)[1]
    if rest:
        rest_words = ", ".join(rest)
        return [f"no variant is better than {rest_words}, on the same text: the best is {best.name} ({best.mean:.4g})"]
    words = standing_words(best.mean, best.entries, group.metric, group.mode)
    if group.split == "test" and words:
        return [f"{best.name} ({best.mean:.4g}) is {words}, on the same text"]
    return []


def records(group: Group, ranked: Sequence[Variant]) -> list[dict[str, Any]]:
    """The baselines of a group in its metric as plain values: name and mean, and of folds how they were paired."""
    best = _best(group, ranked)
    if best is None:
        return []
    if _is_paired(best):
        return [asdict(each) for each in over_folds(group, ranked)]
    found = []
    for baseline in baselines(group.entries):
        if group.metric in baseline["values"]:
            found.append({"name": baseline["name"], "mean": baseline["values"][group.metric], "runs": baseline["runs"]})
    return found


def over_folds(group: Group, ranked: Sequence[Variant]) -> list[FoldBaseline]:
    """The baselines of all variants on the folds of the best one; the same figures are one baseline.

    Args:
        group: runs of folds of one set.
        ranked: its variants, the best first, of several folds.

    Returns:
        The best variant's own, then those that differ, since other variants may read other tokens: what must be
        beaten is the best baseline, whoever's tokens it reads.
    """
    best = next(variant for variant in ranked if variant.values)
    values = {entry.fold: value for entry, value in zip(best.counted, best.values, strict=True)}
    told: list[tuple[str, OfFolds]] = []
    names = []
    for variant in ranked:
        for name, figures in _by_name(variant, group.metric, values).items():
            if any(name == other and _are_alike(figures, known) for other, known in told):
                continue
            shown = printable(name.replace("_", " "))
            if variant is not best:
                shown += f" (of the runs of {variant.name})"
            told.append((name, figures))
            names.append(shown)
    found = []
    for name, (_, figures) in zip(names, told, strict=True):
        one = _described(name, figures, values, group.mode == "min")
        # Too few folds, or no spread: then nothing tells a difference from chance.
        differences = [values[fold] - figure for fold, figure in figures.items()]
        if one.is_whole and statistics.stdev(differences) > MIN_SPREAD * max(map(abs, values.values())):
            ratio = tested_to_trained(best.counted)
            # Of all baselines at once, since the reader looks at all of them.
            half = half_width(statistics.stdev(differences), one.folds, ratio, len(told))
            one = replace(one, low=one.difference - half, high=one.difference + half)
        found.append(one)
    return found


def _described(name: str, figures: OfFolds, values: OfFolds, is_less_better: bool) -> FoldBaseline:
    """A baseline without the interval of its difference."""
    sign = -1 if is_less_better else 1
    difference = sign * statistics.fmean([values[fold] - figure for fold, figure in figures.items()])
    own = list(figures.values())
    sd = statistics.stdev(own) if len(own) >= FEWEST else None
    return FoldBaseline(name, len(own), len(values), statistics.fmean(own), sd, difference)


def _best(group: Group, ranked: Sequence[Variant]) -> Variant | None:
    """The best variant that has a value; None where nothing is concluded."""
    if group.refusal:
        return None
    return next((variant for variant in ranked if variant.values), None)


def _is_paired(best: Variant) -> bool:
    # Of one fold there is no spread: it stands as any single run does.
    return len(best.values) >= FEWEST and are_folds([best])


def _by_name(variant: Variant, metric: str, folds: Mapping[Any, float]) -> dict[str, OfFolds]:
    """The figures of each baseline that the runs of a variant have kept, on these folds."""
    found: dict[str, OfFolds] = {}
    for entry in variant.counted:
        if entry.fold not in folds:
            continue
        for name, kept in kept_baselines(entry):
            if metric in kept:
                found.setdefault(name, {})[entry.fold] = kept[metric]
    return found


def _are_alike(figures: OfFolds, known: OfFolds) -> bool:
    """Return True if every figure of a baseline is also a figure of the other one."""
    for fold, figure in figures.items():
        if fold not in known or not math.isclose(figure, known[fold], rel_tol=1e-9):
            return False
    return True


def _fold_caveats(group: Group, best: Variant, found: Sequence[FoldBaseline]) -> list[str]:
    if not found and group.split == "test":
        return [f"of these folds no baselines are kept, so that nobody knows what must be beaten; {REMEDY}"]
    lines, unbeaten = [], []
    for one in found:
        if not one.is_whole:
            lines.append(
                f"{one.name} is known of {one.folds} of {one.needed} folds, and so not held against {best.name}"
            )
            continue
        lines.append(
            f"{one.name} has {one.mean:.4g} (sd {one.sd:.2g}) on the same {one.folds} folds: {_against(one, best)}"
        )
        if one.low is None or one.low <= 0:
            unbeaten.append(one.name)
    if unbeaten:
        lines.append(f"no variant is shown to be better than {', '.join(unbeaten)}: the best is {best.name}")
    return lines


def _against(one: FoldBaseline, best: Variant) -> str:
    """Return a sentence that compares the best variant with a baseline."""
    size = abs(one.difference)
    side = "better" if one.difference > 0 else "worse"
    if one.low is None or one.high is None:
        if size <= MIN_SPREAD * max(map(abs, best.values)):
            return f"{best.name} is no better, the same on each fold"
        return f"{best.name} is {side} by {size:.2g} on each fold alike, which says nothing of chance"
    low, high = one.low, one.high
    # The interval speaks of the side that is named: a reader need not turn signs.
    if one.difference < 0:
        low, high = -high, -low
    apart = "" if low > 0 else ": no significant difference"
    return f"{best.name} is {side} by {size:.2g} (95 % interval {low:.2g} to {high:.2g}{apart})"
