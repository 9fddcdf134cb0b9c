"""Rows of the page's table of variants: each variant's numbers, and its comparison with the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from seqtrain.compare import test_figures
from seqtrain.compare.comparisons import Comparison
from seqtrain.compare.entries import Entry, decimals
from seqtrain.compare.page.course import Ending, mean_of
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import Conclusion

Endings = Mapping[int, Ending | None]  # by the id of an entry
COSTS = ("steps", "tokens", "flops", "seconds")


def rows(found: Conclusion, endings: Endings) -> list[dict[str, Any]]:
    """Return one row for each variant of a group, the best first."""
    pairs = {}
    references = set()
    for comparison in found.comparisons:
        pairs[id(comparison.other)] = comparison
        references.add(id(comparison.reference))
    several = len(references) > 1  # with `--by`: then a row says which one it was held against
    made = []
    for variant in found.variants:
        row = _row(variant, found.group.metric, endings)
        row["comparison"] = _plain(pairs.get(id(variant)), named=several)
        row["reference"] = id(variant) in references
        made.append(row)
    return made


def digits(variants: Sequence[Variant]) -> int:
    """Return the decimal places of the means of a table: four, and more for small numbers."""
    for variant in variants:  # the best first: the others are held against it
        if variant.mean:
            size = abs(variant.mean)
            return max(decimals(size, 4), min(decimals(size, 5), 4))
    return 4


def mean_cost(entries: Sequence[Entry], name: str) -> float | None:
    """Return the mean of a cost over runs; None if a run does not know it, or there are no runs."""
    return mean_of(map(partial(cost, name=name), entries))


def cost(entry: Entry, name: str) -> float | None:
    """Return a cost of a run: parameters, tokens_per_second, or one of COSTS."""
    if name == "parameters":
        return entry.parameters
    if name == "tokens_per_second":
        return entry.speed
    return entry.cost(name)  # type: ignore[arg-type]


def _row(variant: Variant, metric: str, endings: Endings) -> dict[str, Any]:
    own = variant.counted or variant.entries
    costs: dict[str, float | None] = {}
    for name in COSTS:
        # Of a variant without a value, what its runs have cost so far.
        costs[name] = mean_cost(own, name)
        if variant.counted:  # at the weights that were measured
            costs[name] = variant.costs.get(name)  # type: ignore[call-overload]
    for name in ("parameters", "tokens_per_second"):
        costs[name] = mean_cost(own, name)
    gaps, losses, judged = [], [], []
    for entry in own:
        ending = endings.get(id(entry))
        if ending is not None:
            gaps.append(ending.gap)
            losses.append(ending.lost)
            if ending.overfits is not None:
                judged.append(ending.overfits)
    tests = []
    for entry in variant.counted:
        tests.append(test_figures.columns(entry, metric)["test"])
    return {
        "name": variant.name,
        "mean": variant.mean,
        "interval": variant.interval,
        "values": list(variant.values),
        "so_far": _so_far(variant, metric),
        "seeds": len(variant.values),
        "runs": len(variant.entries),
        "costs": costs,
        "gap": mean_of(gaps),
        "lost": mean_of(losses),
        "overfits": sum(judged),
        "judged": len(judged),
        # Of some runs alone it would be the mean of other seeds than those of the row.
        "test": mean_of(tests),
        "tested": len(tests) - tests.count(None),
    }


def _so_far(variant: Variant, metric: str) -> float | None:
    """Return the mean of the last validations of a variant without finished runs; None for other variants."""
    if variant.values:
        return None
    found = []
    for entry in variant.entries:
        value = entry.metric(metric)
        if value is not None:  # it may not have been validated yet
            found.append(value)
    return mean_of(found)


def _plain(found: Comparison | None, *, named: bool) -> dict[str, Any] | None:
    if found is None:
        return None
    half = (found.high - found.low) / 2
    against = ""
    if named:  # else the head of the column says it
        against = found.reference.name
    return {
        "against": against,
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "digits": decimals(half),
        "shown": found.significant,
        "effect": found.effect,
        "needed": found.seeds_needed,
    }
