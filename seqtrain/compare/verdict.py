"""Conclusions on variants from their seeds, in sentences; comparisons.py has the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from seqtrain.compare.comparisons import MOST_SEEDS, Comparison, compared, repeated, target_sentences
from seqtrain.compare.conditions import split_keys
from seqtrain.compare.entries import Axis, Checkpoint, Entry, decimals, quantity
from seqtrain.compare.folds import CORRECTED, are_folds
from seqtrain.compare.groups import Group, groups
from seqtrain.compare.names import ORIGIN, resolved_by
from seqtrain.compare.rules import MOST_NAMED, Case, caveats, notes
from seqtrain.compare.variants import COSTS, Variant, variants
from seqtrain.errors import UserError, did_you_mean, first_few

NEAR = 0.01  # relative difference up to which two costs are called equal
UNLIKE = 0.1  # relative difference above which a cost is named in the ranking
ACROSS_PARENTS = (
    "across init_from: runs that began with the weights of several runs are one variant, so its spread includes the "
    "spread of those runs"
)


@dataclass(frozen=True)
class Conclusion:
    """A group of comparable runs, its variants, and the sentences on them."""

    group: Group
    variants: list[Variant]
    sentences: list[str]
    remarks: list[str]  # on runs that do not count
    caveats: list[str] = field(default_factory=list)  # on the variants, and on the runs in them
    comparisons: list[Comparison] = field(default_factory=list)  # the pairs of the sentences, as numbers


def conclusions(
    entries: Sequence[Entry],
    *,
    metric: str | None = None,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    across: Sequence[str] = (),
    against: str | None = None,
    target: float | None = None,
    by: Sequence[str] = (),
    hidden: Sequence[Entry] = (),
    untested: int = 0,
) -> list[Conclusion]:
    """Return the whole comparison, group by group; options as those of `groups.groups` and `variants.variants`.

    Args:
        entries: the runs.
        metric: as in `groups.groups`.
        x: as in `variants.variants`.
        checkpoint: as in `variants.variants`.
        across: as in `groups.groups`, and `init_from`: runs that began with weights of different runs are one variant.
        against: the name of the variant that all others are compared with; by default the best of a group.
        target: a value of the metric; sentences on the variants that reach it come first.
        by: keys of `--by`; then variants are compared with those that differ in nothing else.
        hidden: finished runs that `--where` left out.
        untested: number of runs that `--split test` left out.

    Raises:
        UserError: no variant of any group has that name and several seeds, or no run has a key of `by`.
    """
    keys = resolved_by(entries, by)
    conditions = split_keys(across)
    fold_parents = ORIGIN in conditions
    if fold_parents:  # init_from is not a condition of a measurement: it decides which runs form a variant
        conditions.remove(ORIGIN)
    found: list[Conclusion] = []
    for group in groups(entries, metric=metric, across=conditions):
        ranked = variants(group, x=x, checkpoint=checkpoint, by=keys, against=against, fold_parents=fold_parents)
        parts = strata(ranked, keys) if keys else [ranked]
        pairs = []
        case = Case(group, ranked, keys, parts, x, hidden, untested)
        group.notes += notes(case)
        # The verdict starts with the limits of the sentences below.
        joined = ACROSS_PARENTS if fold_parents and any(variant.num_parents > 1 for variant in ranked) else ""
        verdict = [] if group.refusal else list(filter(None, [group.across, joined]))
        # Runs that were trained on the measured text reach no target.
        if target is not None and not group.refusal:
            verdict += target_sentences(group, ranked, target)
        for part in parts:
            verdict += sentences(group, part, x=x, checkpoint=checkpoint, against=against)
            # Pairs of such runs are not compared either.
            if not group.refusal and len(repeated(part)) > 1:
                pairs += compared(part, group.mode, _reference(repeated(part), against))
        found.append(Conclusion(group, ranked, verdict, remarks(ranked), caveats(case), pairs))
    if fold_parents and not any(ACROSS_PARENTS in conclusion.sentences for conclusion in found):
        raise UserError("--across init_from: separates no runs here; leave it out")
    if against is not None:
        _check_against(against, found)
    return found


def strata(variants: Sequence[Variant], by: Sequence[str]) -> list[list[Variant]]:
    """Return groups of variants that differ only in the keys of `--by`; each group keeps the given order.

    If no two variants differ only in these keys, all are one group: their names show the other differences.
    """
    found: dict[str, list[Variant]] = {}
    for variant in variants:
        others = []
        for key, value in variant.settings.items():
            if key not in by:
                others.append((key, repr(value)))
        found.setdefault(repr(sorted(others)), []).append(variant)
    parts = list(found.values())
    return parts if any(len(part) > 1 for part in parts) else [list(variants)]


def _check_against(against: str, found: Sequence[Conclusion]) -> None:
    """Raise UserError if no group has such a variant."""
    names = []
    for conclusion in found:
        names += [variant.name for variant in repeated(conclusion.variants)]
    if against not in names:
        near = did_you_mean(against, names)
        raise UserError(f"--against {against}: no variant with several seeds has this name{near}")


def all_entries(found: Sequence[Conclusion]) -> list[Entry]:
    """Return the runs of all groups, group by group."""
    return list(chain.from_iterable(conclusion.group.entries for conclusion in found))


def sentences(
    group: Group,
    ranked: Sequence[Variant],
    *,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    against: str | None = None,
) -> list[str]:
    """Return the verdict on a group: a ranking, then the best variant, or `against`, compared with each other."""
    if group.refusal:
        return [group.refusal]
    # First in the verdict: which variants are missing from the ranking.
    left_out = [variant.left_out for variant in ranked if variant.left_out]
    return left_out + _sentences(group, ranked, x=x, checkpoint=checkpoint, against=against)


def _sentences(
    group: Group, ranked: Sequence[Variant], *, x: Axis | None, checkpoint: Checkpoint, against: str | None
) -> list[str]:
    """Return the sentences on the variants that have a value."""
    valued = [variant for variant in ranked if variant.values]
    several = repeated(valued)
    if not valued:
        return [f"no conclusion: no finished run has {group.unit} of {group.split}"]
    if len(valued) == 1:
        return [f"no conclusion: {_listed(valued, group)}: no other variant has a value to compare it with"]
    if not several:
        why = "one seed each; 3 seeds would be a start"
        if are_folds(valued):
            why = "one fold each, which says nothing about other folds"
        if any(variant.twins for variant in valued):
            why = "seeds that give the same number count as one, so the spread is unknown"
        return [f"no conclusion: {_listed(valued, group)}: {why}"]
    reference = _reference(several, against)
    comparisons = {id(comparison.other): comparison for comparison in compared(valued, group.mode, reference)}
    pairs = math.comb(len(several), 2)
    limit = None if x is None else reference.limit
    others = [variant for variant in several if variant is not reference]
    lines = []
    if reference is several[0] and len(others) > 1:
        ranking = _ranking(reference, others, comparisons.values(), any(variant.left_out for variant in ranked))
        if ratios := ", ".join(_ratios(reference, others, x)):
            ranking += f"; it has {ratios} of the others"
        lines.append(ranking)
    for other in others:
        comparison = comparisons.get(id(other))
        if comparison is None:
            lines.append(_no_spread_sentence(reference, other, group))
        else:
            lines.append(_comparison_sentence(comparison, group, pairs, x, limit, checkpoint))
    single = [variant for variant in valued if len(variant.values) == 1]
    more = "on other folds" if are_folds(single) else "with other seeds; 3 seeds would be a start"
    if single:
        lines.append(f"no conclusion: how {_listed(single, group)} would do {more}")
    return lines


def _reference(several: Sequence[Variant], against: str | None) -> Variant:
    """Return the variant that others are compared with: `against` if it is among them, otherwise the best."""
    return next((variant for variant in several if variant.name == against), several[0])


def _ranking(best: Variant, others: Sequence[Variant], comparisons: Iterable[Comparison], is_of_some: bool) -> str:
    """Return the sentence on the best variant and those without a significant difference from it."""
    first = "best of those that reached this length" if is_of_some else "best"
    names = [variant.name for variant in ties(best, others, comparisons)]
    if not names:
        return f"{first}: {best.name}, ahead of all {len(others)} others"
    return f"{first}: {best.name}, no significant difference from: {first_few(names, MOST_NAMED)}"


def ties(reference: Variant, several: Sequence[Variant], pairs: Iterable[Comparison]) -> list[Variant]:
    """Return the variants without a significant difference from the reference, also those without a comparison.

    Args:
        reference: the variant that the others were compared with.
        several: variants of several seeds.
        pairs: the comparisons of the reference.
    """
    different = {id(pair.other) for pair in pairs if pair.significant}
    return [variant for variant in several if variant is not reference and id(variant) not in different]


def remarks(ranked: Sequence[Variant]) -> list[str]:
    """Return remarks on runs that do not count in the verdict, each with its reason."""
    lines = []
    for variant in ranked:
        # Runs that a caveat names are not repeated here.
        named = set(map(id, variant.counted))
        for twins in variant.twins:
            named.update(map(id, twins))
        seeds = {repr(entry.replicate) for entry in variant.entries if id(entry) in named}
        again, empty = [], []
        for entry in variant.entries:
            if entry.altered or not entry.finished:
                why = entry.altered or describe_status(entry.status, entry.reason)
                lines.append(f"does not count: {entry.name} {variant.name}: {why}")
            elif id(entry) not in named:
                (again if repr(entry.replicate) in seeds else empty).append(entry.name)
        if not variant.left_out:
            lines += _uncounted(variant.name, empty, "without a value")
            lines += _uncounted(
                variant.name, again, f"of a {'fold' if are_folds([variant]) else 'seed'} that has a value"
            )
    return lines


def _uncounted(variant: str, names: Sequence[str], why: str) -> list[str]:
    """Return a sentence on finished runs that do not count, with the first names; empty if there are no names."""
    if not names:
        return []
    runs = "1 finished run does" if len(names) == 1 else f"{len(names)} finished runs do"
    return [f"{variant}: {runs} not count: {why} ({first_few(names, MOST_NAMED)})"]


def describe_status(status: str, reason: str) -> str:
    """Return a run's status and, if it is known, the reason."""
    return f"{status}: {reason}" if reason else status


def _comparison_sentence(
    found: Comparison, group: Group, pairs: int, x: Axis | None, limit: float | None, checkpoint: Checkpoint
) -> str:
    first, second, difference, low, high = found.reference, found.other, found.difference, found.low, found.high
    if high < 0:  # another variant may be better than the one that `against` names
        first, second, difference, low, high = second, first, -difference, -high, -low
    start = _by_words(first.by, second.by)
    digits = decimals((high - low) / 2)  # more digits would be finer than the interval
    over = f" over all {pairs} pairs" if pairs > 1 else ""
    seeds = f"{len(first.values)} and {len(second.values)} seeds"
    if len(first.values) == len(second.values):
        seeds = f"{len(first.values)} seeds each"
    if found.folds:
        seeds = f"the same {found.folds} folds, {CORRECTED}"
    # In standard deviations: how large the difference is compared with chance.
    effect = f"{found.effect:.2g} standard deviations of {'folds' if found.folds else 'seeds'}"
    condition = _cost_clause(first, second, x, limit, found.significant) + _checkpoint_clause(first, second, checkpoint)
    chance = f"(95 % interval{over} {low:.{digits}f} to {high:.{digits}f}, {seeds}, {effect}) {condition}".rstrip()
    if found.significant:
        return f"{start}{first.name} beats {second.name} by {difference:.{digits}f} {group.unit} {chance}"
    means = first.mean or 0.0, second.mean or 0.0
    # A wide interval has few digits, and would hide the values themselves.
    digits = max(digits, decimals(abs(means[0]), 4), decimals(abs(means[1]), 4))
    values = f"{first.name} {means[0]:.{digits}f}, {second.name} {means[1]:.{digits}f}"
    comparison = f"{values} {group.unit}, difference {difference:.{digits}f} {chance}; {needed(found)}"
    return f"no significant difference: {start}{comparison}"


def _by_words(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> str:
    """Return `at commit a against commit b: ` for two variants of `--by`; empty if nothing differs."""
    differing = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    if not differing:
        return ""
    here, there = (", ".join(map(" ".join, values)) for values in zip(*differing, strict=True))
    return f"at {here} against {there}: "


def needed(found: Comparison) -> str:
    """Return how many seeds would show a difference of this size."""
    if found.folds:  # all folds share their rows
        return "more folds of the same rows would hardly show a difference of this size; more rows would"
    if found.seeds_needed > MOST_SEEDS:
        return f"more than {MOST_SEEDS} seeds each would be needed to show one of this size"
    return f"about {found.seeds_needed} seeds each would show one of this size"


def _no_spread_sentence(one: Variant, other: Variant, group: Group) -> str:
    values = f"{one.name} {one.mean:.6g}, {other.name} {other.mean:.6g} {group.unit}"
    if are_folds([one, other]):
        return f"no conclusion: {values}: fewer than two common folds, or the same difference in each: unknown spread"
    return f"no conclusion: {values}: all seeds of each give the same number, so the spread is unknown"


def _cost_clause(one: Variant, other: Variant, x: Axis | None, limit: float | None, is_won: bool) -> str:
    """Return how far both were trained, then costs of the first as multiples of the second's where they differ."""
    words = []
    if x is not None and limit is not None:
        places = [quantity(limit)]
        for variant in (one, other):
            if variant.costs[x] < (1 - NEAR) * limit:  # its last validation was well before the limit
                places.append(f"{variant.name} at {quantity(variant.costs[x])}")
        words.append(f"at equal {COSTS[x]} ({'; '.join(places)})")
    else:
        lengths = []
        for axis in ("steps", "tokens"):
            costs = [variant.costs[axis] for variant in (one, other) if axis in variant.costs]
            if len(costs) == 2 and max(costs) - min(costs) > NEAR * max(costs):
                lengths.append(f"{quantity(costs[0])} and {quantity(costs[1])} {axis}")
            elif costs and axis == "tokens":  # also if equal, to say how far both were trained
                lengths.append(f"{quantity(costs[0])} tokens each")
        if lengths:
            words.append(f"after {', '.join(lengths)}")
    if ratios := ", ".join(_ratios(one, [other], x)):
        words.append(f"with {ratios}")
        if not is_won:  # then the sentence has no subject
            words[-1] += f" for {one.name}"
    is_known = one.costs or one.parameters  # a file of results may say nothing of costs
    return ", ".join(words) or ("at equal cost" if is_known else "")


def _ratios(one: Variant, others: Sequence[Variant], x: Axis | None) -> list[str]:
    """Return `12 times the parameters` and so on for each cost that differs by more than UNLIKE from another's."""
    words = []
    for name, cost_of in MULTIPLES.items():
        own, known = cost_of(one), list(filter(None, map(cost_of, others)))
        if not own or not known or name == COSTS.get(x or "steps"):
            continue
        ratios = own / max(known), own / min(known)
        if min(ratios) < 1 - UNLIKE or max(ratios) > 1 / (1 - UNLIKE):
            low, high = map("{:.2g}".format, ratios)
            ends = dict.fromkeys((quantity(float(low)), quantity(float(high))))
            words.append(f"{' to '.join(ends)} times the {name}")
    return words


MULTIPLES: dict[str, Callable[[Variant], float | None]] = {
    "parameters": lambda variant: variant.parameters,
    "state": lambda variant: variant.state,
    "FLOPs": lambda variant: variant.costs.get("flops"),
    "seconds": lambda variant: variant.costs.get("seconds"),
}


def _checkpoint_clause(one: Variant, other: Variant, checkpoint: Checkpoint) -> str:
    """Return the number of validations that the best was chosen from: more of them find a better one by chance."""
    if checkpoint == "final":
        return ""
    counts = dict.fromkeys(f"{variant.validations or 0:.3g}" for variant in (one, other))
    return f", best of {' and '.join(counts)} validations"


def _listed(several: Sequence[Variant], group: Group) -> str:
    """List the first variants with their means, and count the others."""
    words = first_few((f"{variant.name} {variant.mean:#.4g}" for variant in several), MOST_NAMED)
    return f"{words} {group.unit}"
