"""Comparisons of variants with several seeds: with each other, by the intervals of intervals.py, or with a target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqtrain.compare.entries import Entry, Mode
from seqtrain.compare.folds import are_folds, fold_pair
from seqtrain.compare.groups import Group
from seqtrain.compare.variants import Variant

if TYPE_CHECKING:
    import numpy as np

MIN_SPREAD = 1e-9  # relative to the values: seeds with a smaller spread differ by rounding only
MOST_SEEDS = 50  # largest number of seeds that a sentence recommends
LEVEL = 0.01  # probability of claiming that a variant reaches a target that its true mean misses


@dataclass(frozen=True)
class Comparison:
    """Difference between the reference variant (the best, or that of `against`) and another one, with its interval."""

    reference: Variant
    other: Variant
    difference: float  # above 0 if the reference is better
    low: float
    high: float
    folds: int = 0  # number of common folds, if folds were paired; 0: seeds were compared
    fold_sd: float = 0.0  # standard deviation of the differences over folds

    @property
    def significant(self) -> bool:
        """True if chance over seeds does not explain the difference."""
        return self.low > 0 or self.high < 0

    @property
    def effect(self) -> float:
        """The difference in standard deviations: of the differences over folds, or of the seeds."""
        if self.folds:
            return abs(self.difference) / self.fold_sd
        return abs(self.difference) / math.sqrt(((self.reference.sd or 0.0) ** 2 + (self.other.sd or 0.0) ** 2) / 2)

    @property
    def seeds_needed(self) -> int:
        """Seeds that would show this difference at the same spread: an interval shrinks with their square root."""
        seeds = min(len(self.reference.values), len(self.other.values))
        half = (self.high - self.low) / 2
        return math.ceil(seeds * (half / abs(self.difference)) ** 2) if self.difference else MOST_SEEDS + 1


def compared(ranked: Sequence[Variant], mode: Mode, against: Variant | None = None) -> list[Comparison]:
    """Compare the best variant, or `against`, with every other one that has several seeds and a spread.

    Args:
        ranked: the variants, the best first, from `variants.variants`.
        mode: whether less or more is better.
        against: one of these variants, with several seeds.
    """
    import numpy as np

    from seqtrain.compare.intervals import half_widths

    several = repeated(ranked)
    if len(several) < 2:
        return []
    place = 0 if against is None else several.index(against)
    if are_folds(several):
        return _over_folds(several, place, mode)
    scale, means, variances, counts = moments(several)
    widths = half_widths(variances, counts, np.array(place))
    errors = variances / counts
    found = []
    for other, variant in enumerate(several):
        if other == place or errors[other] + errors[place] < MIN_SPREAD**2:
            continue
        difference = float(means[other] - means[place])
        if mode == "max":
            difference = -difference
        half = float(widths[other])
        low, high = scale * (difference - half), scale * (difference + half)
        found.append(Comparison(several[place], variant, scale * difference, low, high))
    return found


def _over_folds(several: Sequence[Variant], place: int, mode: Mode) -> list[Comparison]:
    """Compare as `compared` does, for cross-validation: differences on the same folds, with the corrected interval."""
    found = []
    num_pairs = math.comb(len(several), 2)
    for other, variant in enumerate(several):
        pair = fold_pair(several[place], variant, num_pairs) if other != place else None
        if pair is None or pair.sd < MIN_SPREAD * max(abs(value) for value in variant.values):
            continue
        difference = -pair.difference if mode == "max" else pair.difference
        low, high = difference - pair.half, difference + pair.half
        found.append(Comparison(several[place], variant, difference, low, high, pair.count, pair.sd))
    return found


def moments(several: Sequence[Variant]) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return a scale, and the means, variances and counts of variants with several seeds.

    Means are divided by the scale, variances by its square.
    """
    import numpy as np

    scale = max(abs(value) for variant in several for value in variant.values) or 1.0
    # Scaled first: the square of a large perplexity may overflow.
    samples = [np.array(variant.values) / scale for variant in several]
    means = np.array([values.mean() for values in samples])
    variances = np.array([values.var(ddof=1) for values in samples])
    return scale, means, variances, np.array(list(map(len, samples)))


def repeated(ranked: Sequence[Variant]) -> list[Variant]:
    """Return the variants with more than one seed: a single one has no spread."""
    return [variant for variant in ranked if len(variant.values) > 1]


def target_sentences(group: Group, ranked: Sequence[Variant], target: float) -> list[str]:
    """Return one sentence for each variant that has values.

    Args:
        group: has the metric that is compared with the target.
        ranked: its variants.
        target: a value of the metric; reached by values at least as good.
    """
    return [_sentence(group, variant, target) for variant in ranked if variant.values]


def reaches(values: Sequence[float], target: float, mode: Mode) -> bool:
    """Return True if the mean of seeds is at least as good as the target, at LEVEL, by Student's one-sided t."""
    from scipy.special import stdtrit

    sign = 1.0 if mode == "min" else -1.0
    margin = sign * (target - statistics.fmean(values))
    error = statistics.stdev(values) / math.sqrt(len(values))
    return margin >= float(stdtrit(len(values) - 1, 1 - LEVEL)) * error


def first_step(entries: Sequence[Entry], group: Group, target: float) -> int | None:
    """Return the first step from which all common validations of the runs reach the target.

    Return None if there is no such step, or if another split is compared: only validations have curves.
    """
    if group.split != "validation":
        return None
    curves = [dict(zip(*entry.curve(f"validation/{group.metric}", "steps"), strict=True)) for entry in entries]
    common = set(curves[0]).intersection(*curves[1:])
    found = None
    # From the end: a target that was reached and lost again does not count.
    for step in sorted(common, reverse=True):
        if not reaches([curve[step] for curve in curves], target, group.mode):
            break
        found = int(step)
    return found


def _sentence(group: Group, variant: Variant, target: float) -> str:
    seeds = len(variant.values)
    mean = f"{variant.name} {variant.mean:#.4g} {group.unit}"
    if seeds < 2:
        return f"target {target:g}: no conclusion: {mean} of one seed; 3 seeds would be a start"
    if len(set(variant.values)) == 1:
        return f"target {target:g}: no conclusion: {mean}: all seeds give the same number, so the spread is unknown"
    if not reaches(variant.values, target, group.mode):
        return f"target {target:g}: no conclusion: {mean} over {seeds} seeds (needs p < {LEVEL})"
    step = first_step(variant.counted, group, target)
    since = "" if step is None else f", at every validation from step {step:,} on"
    return f"target {target:g}: reached by {mean} over {seeds} seeds (p < {LEVEL}){since}"
