"""What may be concluded of variants: Welch's t over seeds, in sentences (Welch 1947; Bonferroni over the pairs)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from seqtrain.compare.entries import AXES, Axis, Checkpoint, Entry, Mode
from seqtrain.compare.guard import Group, groups
from seqtrain.compare.variants import CONFIDENCE, Variant, last_common, variants

COSTS: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "seconds": "seconds", "flops": "FLOPs"}
MIN_SPREAD = 1e-9  # of the values' size: below it lies rounding, and seeds give the same number
NEAR = 0.01  # of the larger of two costs: by so much they may differ and still be called equal
MOST_NAMED = 4  # variants in one sentence


@dataclass(frozen=True)
class Comparison:
    """The best of several variants beside another one: by how much it is better, with the interval of that."""

    best: Variant
    other: Variant
    difference: float  # above 0 where the best is better
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether chance over seeds does not explain it."""
        return self.low > 0


@dataclass(frozen=True)
class Conclusion:
    """A group of like runs, its variants, and what may be said of them."""

    group: Group
    variants: list[Variant]
    sentences: list[str]
    remarks: list[str]  # on runs that do not count


def welch(one: Sequence[float], other: Sequence[float], *, pairs: int = 1) -> tuple[float, float] | None:
    """The 95 % interval of mean(other) - mean(one), by Welch's t; each needs two values.

    Args:
        pairs: of how many pairs at once the intervals shall hold.

    Returns:
        Its lower and upper end; None where there is no spread to speak of.
    """
    from scipy.special import stdtrit

    scale = max(map(abs, (*one, *other))) or 1.0  # the square of a perplexity may be beyond all numbers
    one_mean, one_error = _mean_and_error(one, scale)
    other_mean, other_error = _mean_and_error(other, scale)
    error = one_error + other_error
    if error < MIN_SPREAD**2:
        return None
    freedom = error**2 / (one_error**2 / (len(one) - 1) + other_error**2 / (len(other) - 1))  # Welch-Satterthwaite
    half = math.sqrt(error) * float(stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2 / pairs))
    difference = other_mean - one_mean
    return scale * (difference - half), scale * (difference + half)


def _mean_and_error(values: Sequence[float], scale: float) -> tuple[float, float]:
    """The mean of the values divided by `scale`, and the square of its standard error."""
    scaled = [value / scale for value in values]
    mean = math.fsum(scaled) / len(scaled)
    squares = math.fsum((value - mean) ** 2 for value in scaled)
    return mean, squares / (len(scaled) - 1) / len(scaled)


def compared(ranked: Sequence[Variant], mode: Mode) -> list[Comparison]:
    """The best variant beside each other one, of those with several seeds and a spread.

    Args:
        ranked: the variants, the best first, as `variants.variants` gives them.
        mode: whether less or more is better.
    """
    several = repeated(ranked)
    found = []
    for other in several[1:]:
        # The best was found by looking at all of them, so the intervals have to hold for all pairs at once.
        interval = welch(several[0].values, other.values, pairs=math.comb(len(several), 2))
        if interval is None:
            continue
        low, high = interval
        if mode == "max":
            low, high = -high, -low
        found.append(Comparison(several[0], other, (low + high) / 2, low, high))
    return found


def repeated(ranked: Sequence[Variant]) -> list[Variant]:
    """Those with more than one seed: of one alone, chance cannot be told from a difference."""
    return [variant for variant in ranked if len(variant.values) > 1]


def conclusions(
    entries: Sequence[Entry],
    *,
    metric: str | None = None,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    across: Sequence[str] = (),
) -> list[Conclusion]:
    """The whole comparison, group by group; options as those of `guard.groups` and `variants.variants`."""
    found = []
    for group in groups(entries, metric=metric, across=across):
        ranked = variants(group, x=x, checkpoint=checkpoint)
        verdict = sentences(group, ranked, x=x, checkpoint=checkpoint)
        found.append(Conclusion(group, ranked, verdict, remarks(ranked)))
    return found


def all_entries(found: Sequence[Conclusion]) -> list[Entry]:
    """The runs of all groups, group by group."""
    return list(chain.from_iterable(conclusion.group.entries for conclusion in found))


def sentences(
    group: Group, ranked: Sequence[Variant], *, x: Axis | None = None, checkpoint: Checkpoint = "final"
) -> list[str]:
    """The verdict on the variants of a group, the best beside each other one, in words."""
    valued = [variant for variant in ranked if variant.values]
    several = repeated(valued)
    if not valued:
        return [f"not shown: no finished run has {group.unit} of {group.split}"]
    if len(valued) == 1:
        return [f"not shown: {_listed(valued, group)} stands alone: no other variant has a value to compare it with"]
    if not several:
        return [f"not shown: {_listed(valued, group)}: one seed each; 3 seeds would be a start"]
    comparisons = {id(comparison.other): comparison for comparison in compared(valued, group.mode)}
    pairs = math.comb(len(several), 2)
    limit = None if x is None else last_common(group, x)
    best, *others = several
    lines = []
    for other in others:
        comparison = comparisons.get(id(other))
        if comparison is None:
            lines.append(_no_spread_sentence(best, other, group))
        else:
            condition = _cost_clause(best, other, x, limit) + _checkpoint_clause(best, other, checkpoint)
            lines.append(_comparison_sentence(comparison, group, pairs, condition))
    single = [variant for variant in valued if len(variant.values) == 1]
    if single:
        lines.append(f"not shown: how {_listed(single, group)} would do with other seeds; 3 seeds would be a start")
    return lines


def remarks(ranked: Sequence[Variant]) -> list[str]:
    """What a reader of the verdict must know of runs that do not count in it, and why each does not."""
    lines = []
    for variant in ranked:
        finished = 0
        for entry in variant.entries:
            if entry.finished:
                finished += 1
            else:
                status = describe_status(entry.status, entry.reason)
                lines.append(f"does not count: {entry.name} {variant.name}: {status}")
        uncounted = finished - len(variant.counted)
        if uncounted:
            runs = "1 finished run does" if uncounted == 1 else f"{uncounted} finished runs do"
            lines.append(f"{variant.name}: {runs} not count: without a value, or of a seed that has one")
    return lines


def describe_status(status: str, reason: str) -> str:
    """A run's status and, where it is known, the reason."""
    return f"{status}: {reason}" if reason else status


def quantity(value: float) -> str:
    """A large number in a few characters, such as 1.2M or 3.4e+12."""
    rounded = float(f"{value:.3g}")  # first: 999,700 is a million, not a thousand thousand
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(rounded) < 1e12:
            return f"{rounded / size:.3g}{letter}"
    return f"{rounded:.3g}"


def decimals(size: float, digits: int = 2) -> int:
    """Digits behind the point that show a number of this size with so many digits; 8 at most."""
    return min(max(digits - 1 - math.floor(math.log10(size or 1.0)), 0), 8)


def _comparison_sentence(found: Comparison, group: Group, pairs: int, condition: str) -> str:
    best, other = found.best, found.other
    digits = decimals((found.high - found.low) / 2)  # those behind are beyond what the interval can tell
    over = f" over all {pairs} pairs" if pairs > 1 else ""
    seeds = f"{len(best.values)} and {len(other.values)} seeds"
    if len(best.values) == len(other.values):
        seeds = f"{len(best.values)} seeds each"
    chance = f"(95 % interval{over} {found.low:.{digits}f} to {found.high:.{digits}f}, {seeds}) {condition}"
    if found.significant:
        return f"{best.name} beats {other.name} by {found.difference:.{digits}f} {group.unit} {chance}"
    best_mean, other_mean = best.mean or 0.0, other.mean or 0.0
    # A wide interval has few digits, and would hide the values themselves.
    digits = max(digits, decimals(abs(best_mean), 4), decimals(abs(other_mean), 4))
    values = f"{best.name} {best_mean:.{digits}f}, {other.name} {other_mean:.{digits}f}"
    return f"not shown: {values} {group.unit}, difference {found.difference:.{digits}f} {chance}"


def _no_spread_sentence(one: Variant, other: Variant, group: Group) -> str:
    values = f"{one.name} {one.mean:.6g}, {other.name} {other.mean:.6g} {group.unit}"
    return f"not shown: {values}: all seeds of each give the same number, which says nothing of chance"


def _cost_clause(one: Variant, other: Variant, x: Axis | None, limit: float | None) -> str:
    """What both had cost where they were measured: at equal x, or what differs."""
    if x is not None and limit is not None:
        clause = f"at equal {COSTS[x]} ({quantity(limit)}"
        for variant in (one, other):
            if variant.costs[x] < (1 - NEAR) * limit:  # its last validation before the limit lies well before it
                clause += f"; {variant.name} at {quantity(variant.costs[x])}"
        return f"{clause})"
    differing = []
    for axis in AXES:
        costs = [variant.costs[axis] for variant in (one, other) if axis in variant.costs]
        if len(costs) == 2 and max(costs) - min(costs) > NEAR * max(costs):
            differing.append(f"{quantity(costs[0])} and {quantity(costs[1])} {COSTS[axis]}")
        elif costs and axis == "tokens":  # said also where it is equal: how far both were trained
            differing.append(f"{quantity(costs[0])} tokens each")
    return f"after {', '.join(differing)}" if differing else "at equal cost"


def _checkpoint_clause(one: Variant, other: Variant, checkpoint: Checkpoint) -> str:
    """Of how many validations the best was taken: of more, chance alone finds a better one."""
    if checkpoint == "final":
        return ""
    counts = dict.fromkeys(f"{variant.validations or 0:.3g}" for variant in (one, other))
    return f", best of {' and '.join(counts)} validations"


def _listed(several: Sequence[Variant], group: Group) -> str:
    """The first variants with their means, and how many more there are."""
    words = ", ".join(f"{variant.name} {variant.mean:#.4g}" for variant in several[:MOST_NAMED])
    if len(several) > MOST_NAMED:
        words += f" and {len(several) - MOST_NAMED} more"
    return f"{words} {group.unit}"
