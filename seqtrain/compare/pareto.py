"""The Pareto front of the variants: which are better at each cost, and whether the spread over seeds shows it."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from seqtrain.compare.comparisons import compared, repeated
from seqtrain.compare.entries import Mode, quantity
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import NEAR, Conclusion
from seqtrain.errors import first_few

if TYPE_CHECKING:
    import numpy as np

Cost = Literal["tokens", "flops", "seconds", "parameters", "state"]
COSTS: tuple[Cost, ...] = get_args(Cost)
WORDS: dict[Cost, str] = {cost: "FLOPs" if cost == "flops" else cost for cost in COSTS}

# front: on it, and significantly better than all that cost no more. perhaps: on it by the means only. near: not on it
# by the means, but without a significant difference. behind: another one costs no more and is significantly better.
Standing = Literal["front", "perhaps", "near", "behind"]

MOST_RIVALS = 3  # that one line names
MOST_POINTS = 12  # points of a front that the terminal shows


@dataclass(frozen=True)
class Point:
    """A variant's metric and one of its costs, and its standing on their Pareto front."""

    variant: Variant
    cost: float  # the mean over its seeds
    standing: Standing
    rivals: tuple[str, ...]  # variants that cost no more and are not shown to be worse

    def record(self) -> dict[str, Any]:
        """Return the point as plain values."""
        return {
            "variant": self.variant.name,
            "cost": self.cost,
            "mean": self.variant.mean,
            "standing": self.standing,
            "no_significant_difference_from": list(self.rivals),
        }


def fronts(found: Conclusion) -> dict[Cost, list[Point]]:
    """Return the points for each cost that at least two variants have recorded, the cheapest first.

    The result is empty if nothing may be concluded from the group's results.
    """
    if found.group.refusal:
        return {}
    points: dict[Cost, list[Point]] = {}
    shown: dict[tuple[int, ...], np.ndarray] = {}  # by variants: most costs are known for the same ones
    for cost in COSTS:
        known = [each for each in found.variants if each.values and cost_of(each, cost) is not None]
        if len(known) > 1:
            ids = tuple(map(id, known))
            if ids not in shown:
                shown[ids] = shown_better(known, found.group.mode)
            points[cost] = front(known, cost, found.group.mode, shown[ids])
    return points


def front(variants: Sequence[Variant], cost: Cost, mode: Mode, better: np.ndarray) -> list[Point]:
    """Return the points of variants, the cheapest first.

    Args:
        variants: each has a value and this cost; the intervals hold for all their pairs at once.
        cost: the cost on the other axis; less is better.
        mode: whether less or more of the metric is better.
        better: (V, V) of bool, from `shown_better`.
    """
    # Looked up once: all pairs of hundreds of variants are compared.
    ranges = list(map(partial(_range, cost=cost), variants))
    pairs = [(_loss(variant, mode), cost_of(variant, cost) or 0.0) for variant in variants]
    points = []
    for place, variant in enumerate(variants):
        is_led, is_beaten, rivals = False, False, []
        for other, rival in enumerate(variants):
            if other == place:
                continue
            # The rival dominates by the means: its loss and cost are at most equal, and one of them is lower.
            is_led |= pairs[other] != pairs[place] and all(map(operator.le, pairs[other], pairs[place]))
            # A rival that certainly costs more does not decide whether this one is on the front.
            if ranges[other][0] > ranges[place][1] * (1 + NEAR):
                continue
            # The rival is shown to be better, and certainly costs no more, up to NEAR.
            is_beaten |= bool(better[other, place]) and ranges[other][1] <= ranges[place][0] * (1 + NEAR)
            if not better[place, other]:
                rivals.append(rival.name)
        standing: Standing = "behind" if is_beaten else "near" if is_led else "perhaps" if rivals else "front"
        points.append(Point(variant, pairs[place][1], standing, tuple(rivals)))
    return sorted(points, key=lambda point: point.cost)


def cost_of(variant: Variant, cost: Cost) -> float | None:
    """Return the mean cost over the runs that count; None if it is unknown for one of them."""
    if cost == "parameters":
        return variant.parameters
    return variant.state if cost == "state" else variant.costs.get(cost)


def shown_better(variants: Sequence[Variant], mode: Mode) -> np.ndarray:
    """Return, for each ordered pair of variants, whether the first is shown to be better: (V, V) of bool.

    The verdict's intervals decide. A variant with one seed, or with equal numbers for all seeds, shows nothing.
    """
    import numpy as np

    shown = np.zeros((len(variants), len(variants)), dtype=bool)
    place_of = {id(variant): place for place, variant in enumerate(variants)}
    for variant in repeated(variants):
        for found in compared(variants, mode, variant):
            shown[place_of[id(variant)], place_of[id(found.other)]] = found.low > 0
    return shown


def text_lines(found: Conclusion, costs: Sequence[Cost]) -> list[str]:
    """Format the fronts against these costs for the terminal, each with its limits."""
    known = fronts(found) if costs else {}
    lines = []
    for cost in costs:
        title = f"Pareto front, {found.group.unit} against {WORDS[cost]}"
        if cost in known:
            lines += _front_lines(title, known[cost], len(found.variants))
        else:
            lines.append(f"{title}: no conclusion: fewer than two comparable variants have both")
    return lines


def standings(found: Conclusion) -> dict[str, dict[Cost, Standing]]:
    """Return each variant's standing against each cost, by its name."""
    marks: dict[str, dict[Cost, Standing]] = {}
    for cost, points in fronts(found).items():
        for point in points:
            marks.setdefault(point.variant.name, {})[cost] = point.standing
    return marks


def _loss(variant: Variant, mode: Mode) -> float:
    """Return the mean of the variant's metric, negated if more is better."""
    mean = variant.mean or 0.0
    return -mean if mode == "max" else mean


def _range(variant: Variant, cost: Cost) -> tuple[float, float]:
    """Return the lowest and the highest cost of a variant: seconds also differ between seeds."""
    mean = cost_of(variant, cost) or 0.0
    if cost != "seconds":
        return mean, mean
    numbers = [entry.cost(cost) or mean for entry in variant.counted]
    if not any(numbers):
        return mean, mean
    # Scaled to the mean, which is of an earlier step if the comparison is at equal tokens.
    middle = statistics.fmean(numbers)
    return mean * min(numbers) / middle, mean * max(numbers) / middle


def _front_lines(title: str, points: Sequence[Point], num_variants: int) -> list[str]:
    """Format a front: its variants, the cheapest first, those that may belong to it, and the number left out."""
    on_front = [point for point in points if point.standing in ("front", "perhaps")]
    near = [point.variant.name for point in points if point.standing == "near"]
    if points[-1].cost <= points[0].cost * (1 + NEAR):
        return [f"{title}: no conclusion: all cost about the same ({quantity(points[0].cost)}), the best is all of it"]
    lines = [f"{title}, the cheapest first ({len(points)} variants):"]
    for point in on_front[:MOST_POINTS]:
        line = f"  {point.variant.name}: {point.variant.mean:.4f} at {quantity(point.cost)}"
        if point.rivals and len(point.variant.values) == 1:
            line += ", perhaps by chance"
        elif point.rivals:
            rivals = first_few(point.rivals, MOST_RIVALS)
            line += f", perhaps by chance: no significant difference from {rivals}, at no higher cost"
        lines.append(line)
    if len(on_front) > MOST_POINTS:
        lines.append(f"  and {len(on_front) - MOST_POINTS} more: --json has all")
    if near:
        lines.append(f"  not on it by the means, no significant difference from it: {first_few(near, MOST_RIVALS)}")
    left_out = num_variants - len(points)
    if left_out:
        lines.append(f"  left out, without a value or a known cost: {left_out} of {num_variants} variants")
    if any(len(point.variant.values) == 1 for point in points):
        lines.append("  one seed shows no significant difference; 3 seeds would be a start")
    return lines
