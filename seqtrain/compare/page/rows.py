"""What the page's table of variants holds: each variant's numbers, and how it stands beside the best one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqtrain.compare import kept_figures
from seqtrain.compare.entries import Entry
from seqtrain.compare.page.course import Ending
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import Comparison, Conclusion, decimals

Endings = Mapping[int, Ending | None]  # by the id of an entry
COSTS = ("steps", "tokens", "flops", "seconds")


def rows(found: Conclusion, endings: Endings) -> list[dict[str, Any]]:
    """One row a variant of a group, the best first."""
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
    """Digits behind the point for the means of a table: four, and more where numbers are small."""
    means = [abs(variant.mean) for variant in variants if variant.mean]
    if not means:
        return 4
    return max(decimals(means[0], 4), min(decimals(means[0], 5), 4))


def mean_cost(entries: Sequence[Entry], name: str) -> float | None:
    """The mean of a cost over runs; None where one of them does not know it, or there is none."""
    return _mean([cost(entry, name) for entry in entries])


def cost(entry: Entry, name: str) -> float | None:
    """What a run cost: parameters, tokens_per_second, or one of COSTS."""
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
        known_cost = variant.costs.get(name) if variant.counted else mean_cost(own, name)  # type: ignore[call-overload]
        costs[name] = known_cost
    for name in ("parameters", "tokens_per_second"):
        costs[name] = mean_cost(own, name)
    known = [ending for ending in (endings.get(id(entry)) for entry in own) if ending is not None]
    judged = [ending.overfits for ending in known if ending.overfits is not None]
    tests = [kept_figures.columns(entry, metric)["test"] for entry in variant.counted]
    measured = [value for value in tests if value is not None]
    return {
        "name": variant.name,
        "mean": variant.mean,
        "sd": variant.sd,
        "interval": variant.interval,
        "values": list(variant.values),
        "so_far": None if variant.values else _so_far(variant, metric),
        "seeds": len(variant.values),
        "runs": len(variant.entries),
        "costs": costs,
        "gap": _mean([ending.gap for ending in known]),
        "lost": _mean([ending.lost for ending in known]),
        "overfits": sum(judged),
        "judged": len(judged),
        # Of some runs alone it would be the mean of other seeds than those of the row.
        "test": _mean(measured) if len(measured) == len(tests) else None,
        "tested": len(measured),
    }


def _so_far(variant: Variant, metric: str) -> float | None:
    """The mean of the last validations of a variant of which no run has finished."""
    return _mean([value for entry in variant.entries if (value := entry.metric(metric)) is not None])


def _mean(values: Iterable[float | None]) -> float | None:
    """Their mean; None where one is not known, or there is none."""
    known = list(values)
    if not known or None in known:
        return None
    return statistics.fmean(known)  # type: ignore[arg-type]


def _plain(found: Comparison | None, *, named: bool) -> dict[str, Any] | None:
    if found is None:
        return None
    half = (found.high - found.low) / 2
    return {
        "against": found.reference.name if named else "",
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "digits": decimals(half),
        "shown": found.significant,
        "effect": found.effect,
        "needed": found.seeds_needed,
    }
