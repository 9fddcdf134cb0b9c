"""What may be concluded of variants: Welch's t over seeds, in sentences (Welch 1947; Bonferroni over the pairs)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seqtrain.compare.entries import AXES, Axis, Entry, Which
from seqtrain.compare.guard import Group, groups
from seqtrain.compare.variants import CONFIDENCE, Variant, common, variants

COSTS: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "seconds": "seconds", "flops": "FLOPs"}
ROUNDING = 1e-9
"""Spread, as a share of the values, below which seeds give the same number."""

NEAR = 0.01
"""Share by which two costs may differ and still be called equal."""


@dataclass(frozen=True)
class Comparison:
    """The best of several variants beside another one: by how much it is better, and between what and what that
    lies."""

    best: Variant
    other: Variant
    difference: float  # above 0 where the best is better
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """Whether chance over seeds does not explain it."""
        return self.low > 0


def welch(one: Sequence[float], other: Sequence[float], *, pairs: int = 1) -> tuple[float, float] | None:
    """The interval of mean(other) - mean(one), which holds for all of so many pairs at once with 95 %.

    None where there is no spread to speak of. Each needs two values.
    """
    from scipy.special import stdtrit

    scale = max(abs(value) for value in (*one, *other)) or 1.0  # the square of a perplexity may be beyond all numbers
    means, shares, frees = [], [], []
    for values in (one, other):
        scaled = [value / scale for value in values]
        means.append(math.fsum(scaled) / len(values))
        frees.append(len(values) - 1)
        shares.append(math.fsum((value - means[-1]) ** 2 for value in scaled) / frees[-1] / len(values))
    if sum(shares) < ROUNDING**2:
        return None
    freedom = sum(shares) ** 2 / sum(share**2 / free for share, free in zip(shares, frees, strict=True))
    half = math.sqrt(sum(shares)) * float(stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2 / pairs))
    difference = means[1] - means[0]
    return scale * (difference - half), scale * (difference + half)


def compared(folded: Sequence[Variant], mode: Literal["min", "max"]) -> list[Comparison]:
    """The best variant beside each other one, of those with several seeds and a spread; `folded` as `variants` sorts
    them.

    The best one was found by looking at all of them: so the intervals hold for all pairs at once.
    """
    able = [variant for variant in folded if len(variant.values) > 1]
    found = []
    for other in able[1:]:
        interval = welch(able[0].values, other.values, pairs=math.comb(len(able), 2))
        if interval is not None:
            low, high = sorted(edge if mode == "min" else -edge for edge in interval)
            found.append(Comparison(able[0], other, (low + high) / 2, low, high))
    return found


@dataclass(frozen=True)
class Conclusion:
    """A group of like runs, its variants, and what may be said of them."""

    group: Group
    variants: list[Variant]
    sentences: list[str]
    remarks: list[str]  # on runs that do not count


def conclusions(
    entries: Sequence[Entry],
    *,
    metric: str | None = None,
    x: Axis | None = None,
    which: Which = "final",
    across: Sequence[str] = (),
) -> list[Conclusion]:
    """The whole comparison, group by group; options as those of `guard.groups` and `variants.variants`."""
    made = []
    for group in groups(entries, metric=metric, across=across):
        folded = variants(group, x=x, which=which)
        made.append(Conclusion(group, folded, sentences(group, folded, x=x, which=which), remarks(folded)))
    return made


def sentences(group: Group, folded: Sequence[Variant], *, x: Axis | None = None, which: Which = "final") -> list[str]:
    """The verdict on the variants of a group, the best beside each other one, in words."""
    valued = [variant for variant in folded if variant.values]
    if not valued:
        return [f"not shown: no finished run has {group.unit} of validation"]
    if len(valued) == 1:
        return [f"not shown: {_listed(valued, group)} stands alone: no other variant has a value to compare it with"]
    able = [variant for variant in valued if len(variant.values) > 1]
    if not able:
        return [f"not shown: {_listed(valued, group)}: one seed each; 3 seeds would be a start"]
    found = {id(made.other): made for made in compared(valued, group.mode)}
    pairs, limit = math.comb(len(able), 2), None if x is None else common(group, x)
    lines = []
    for other in able[1:]:
        if (made := found.get(id(other))) is None:
            lines.append(_flat(able[0], other, group))
        else:
            where = _where(able[0], other, x, limit) + _best_of(able[0], other, which)
            lines.append(_sentence(made, group, pairs, where))
    if single := [variant for variant in valued if len(variant.values) == 1]:
        lines.append(f"not shown: how {_listed(single, group)} would do with other seeds; 3 seeds would be a start")
    return lines


def remarks(folded: Sequence[Variant]) -> list[str]:
    """What a reader of the verdict must know of runs that do not count in it, and why each does not."""
    lines = []
    for variant in folded:
        lost = [entry for entry in variant.entries if not entry.finished]
        lines += [
            f"does not count: {entry.name} {variant.name}: {because(entry.status, entry.reason)}" for entry in lost
        ]
        again = len(variant.entries) - len(lost) - len(variant.counted)
        if again:
            runs = "1 finished run does" if again == 1 else f"{again} finished runs do"
            lines.append(f"{variant.name}: {runs} not count: without a value, or of a seed that has one")
    return lines


def because(status: str, reason: str) -> str:
    """How a run stands and, where that is known, why."""
    return f"{status}: {reason}" if reason else status


def quantity(value: float) -> str:
    """A large number in a few characters, such as 1.2M or 3.4e+12."""
    rounded = float(f"{value:.3g}")  # first: 999,700 is a million, not a thousand thousand
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(rounded) < 1e12:
            return f"{rounded / size:.3g}{letter}"
    return f"{rounded:.3g}"


def places(size: float, digits: int = 2) -> int:
    """Decimals that show a number of this size with so many digits."""
    return min(max(digits - 1 - math.floor(math.log10(size or 1.0)), 0), 8)


def _sentence(made: Comparison, group: Group, pairs: int, where: str) -> str:
    one, other, digits = made.best, made.other, places((made.high - made.low) / 2)
    over = f" over all {pairs} pairs" if pairs > 1 else ""
    seeds = f"{len(one.values)} and {len(other.values)} seeds"
    if len(one.values) == len(other.values):
        seeds = f"{len(one.values)} seeds each"
    chance = f"(95 % interval{over} {made.low:.{digits}f} to {made.high:.{digits}f}, {seeds}) {where}"
    if made.shown:
        return f"{one.name} beats {other.name} by {made.difference:.{digits}f} {group.unit} {chance}"
    means = [variant.mean or 0.0 for variant in (one, other)]
    finer = max(digits, *(places(abs(mean), 4) for mean in means))  # a wide interval hides the values themselves
    values = ", ".join(f"{variant.name} {mean:.{finer}f}" for variant, mean in zip((one, other), means, strict=True))
    return f"not shown: {values} {group.unit}, difference {made.difference:.{finer}f} {chance}"


def _flat(one: Variant, other: Variant, group: Group) -> str:
    """Of variants whose seeds give the same number: there is no spread to judge a difference by."""
    values = f"{one.name} {one.mean:.6g}, {other.name} {other.mean:.6g} {group.unit}"
    return f"not shown: {values}: all seeds of each give the same number, which says nothing of chance"


def _where(one: Variant, other: Variant, x: Axis | None, limit: float | None) -> str:
    """What both had cost where they were measured: at equal x, or what differs."""
    if x is not None and limit is not None:
        late = [variant for variant in (one, other) if variant.costs[x] < (1 - NEAR) * limit]
        actual = "".join(f"; {variant.name} at {quantity(variant.costs[x])}" for variant in late)
        return f"at equal {COSTS[x]} ({quantity(limit)}{actual})"
    told = []
    for axis in AXES:
        costs = [variant.costs[axis] for variant in (one, other) if axis in variant.costs]
        if len(costs) == 2 and max(costs) - min(costs) > NEAR * max(costs):
            told.append(f"{quantity(costs[0])} and {quantity(costs[1])} {COSTS[axis]}")
        elif costs and axis == "tokens":
            told.append(f"{quantity(costs[0])} tokens each")
    return f"after {', '.join(told)}" if told else "at equal cost"


def _best_of(one: Variant, other: Variant, which: Which) -> str:
    if which == "final":
        return ""
    counts = list(dict.fromkeys(f"{variant.validations or 0:.3g}" for variant in (one, other)))
    return f", best of {' and '.join(counts)} validations"


def _listed(several: Sequence[Variant], group: Group) -> str:
    shown = ", ".join(f"{variant.name} {variant.mean:#.4g}" for variant in several[:4])
    more = f" and {len(several) - 4} more" if len(several) > 4 else ""
    return f"{shown}{more} {group.unit}"
