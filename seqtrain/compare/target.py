"""Targets: whether variants reach one, and from which step on, by a bound over seeds instead of one run's luck."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from seqtrain.compare.entries import Entry, Mode
from seqtrain.compare.guard import Group
from seqtrain.compare.variants import Variant

LEVEL = 0.01  # the chance that a variant whose true mean misses the target is said to reach it


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
    """Return the first step at which all runs have a validation, and from which on every validation reaches the target.

    None if there is no such step, or if another split is compared: only validations have curves.
    """
    if group.split != "validation":
        return None
    curves = []
    for entry in entries:
        steps, values = entry.curve(f"validation/{group.metric}", "steps")
        curves.append(dict(zip(steps, values, strict=True)))
    common = set(curves[0]).intersection(*curves[1:])
    found = None
    # From the end: what was reached once and lost again was not reached.
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
        return f"target {target:g}: no conclusion: {mean}: all seeds give the same number, which says nothing of chance"
    if not reaches(variant.values, target, group.mode):
        return f"target {target:g}: no conclusion: {mean} over {seeds} seeds (p < {LEVEL} is asked for)"
    step = first_step(variant.counted, group, target)
    since = "" if step is None else f", at every validation from step {step:,} on"
    return f"target {target:g}: reached by {mean} over {seeds} seeds (p < {LEVEL}){since}"
