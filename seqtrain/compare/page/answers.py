"""Short answers to a reader's first questions: which is best, is it sure, what did it cost, does it overfit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from seqtrain.compare.baselines import standing_words
from seqtrain.compare.comparisons import Comparison, repeated
from seqtrain.compare.entries import Entry, Mode, count_statuses, differing, mean_of, number, quantity, short_names
from seqtrain.compare.filters import written
from seqtrain.compare.names import brief
from seqtrain.compare.page.course import Endings, duration, mean_cost
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import Conclusion, needed, ties
from seqtrain.errors import first_few

MOST_NAMED = 4  # variants, settings or values in one line
BETTER: dict[Mode, str] = {"min": "less", "max": "more"}
# Costs, in the order of printing.
UNITS = {
    **{"parameters": "parameters", "state": "numbers of state", "tokens": "tokens", "flops": "FLOPs"},
    **{"seconds": "of training", "joules": "joules", "tokens_per_second": "tokens/s"},
}

Answers = list[tuple[str, str]]


def answers(found: Conclusion, endings: Endings) -> Answers:
    """Return questions and answers about a group of runs, in the order of a reader's interest."""
    if found.group.refusal:
        return [("Which is best?", found.group.refusal)]
    valued = list(filter(attrgetter("values"), found.variants))
    if not valued:
        none = f"no finished run has {found.group.unit} of {found.group.split} yet"
        return [("Which is best?", none), *_whole(found)]
    best = valued[0]
    beside = standing_words(best.mean, best.entries, found.group.metric, found.group.mode)
    return [
        *_best(found, valued),
        *([("Better than baselines?", f"{best.name}: {beside}")] if beside else []),
        ("What did it cost?", _cost(found, valued)),
        ("What differs?", _differences(found.group.entries)),
        ("Is it overfitting?", _overfitting(valued, endings)),
        *_whole(found),
    ]


def read_first(found: Conclusion) -> list[str]:
    """Return the notes to read before any answer: limits of `--across`, and the variants that were left out."""
    if found.group.refusal:
        return []
    lines = [found.group.across, *map(attrgetter("left_out"), found.variants)]
    return list(filter(None, lines))


def cost_words(entries: Sequence[Entry]) -> str:
    """Return the mean cost of these runs in words; empty if no cost is known."""
    words = []
    for name, unit in UNITS.items():
        value = mean_cost(entries, name)
        if value is not None:
            words.append(f"{(duration if name == 'seconds' else quantity)(value)} {unit}")
    return ", ".join(words)


def ending_words(name: str, entries: Sequence[Entry], endings: Endings) -> str:
    """Return whether the runs of a variant overfit, in words, as far as their validations show it."""
    known = [ending for ending in map(endings.get, map(id, entries)) if ending is not None]
    judged = [ending for ending in known if ending.overfits is not None]
    overfit = [ending for ending in judged if ending.overfits]
    if not judged:
        return f"{name}: unknown: too few validations, or no record of the metric in training"
    if overfit:
        runs = f" in {len(overfit)} of {len(judged)} runs" if len(judged) > 1 else ""
        worst = max(overfit, key=attrgetter("lost"))  # show the clearest case
        return (
            f"{name}: yes{runs}: validation was best at step {worst.best_step:,} and {worst.lost:.4g} worse at step "
            f"{worst.last_step:,}, while training still improved"
        )
    gap = mean_of(ending.gap for ending in judged)
    beside = "" if gap is None else f", and {abs(gap):.2g} {'worse' if gap > 0 else 'better'} than training"
    return f"{name}: no sign of it: validation at the end is as good as its best, or nearly so{beside}"


def _best(found: Conclusion, valued: Sequence[Variant]) -> Answers:
    """Return which variant is best, and whether chance may explain it."""
    group, best = found.group, valued[0]
    several = repeated(valued)
    seeds = "one seed"
    if len(best.values) > 1:
        seeds = f"mean of {len(best.values)} seeds"
    words = f"{best.name}: {best.mean:.5g} {group.unit} ({seeds}; {BETTER[group.mode]} is better)"
    # One reference if all were compared with the same variant; with `--by` there may be several.
    references = set(map(attrgetter("reference.name"), found.comparisons))
    if len(valued) == 1:
        alone = "there is nothing to compare it with"
        if len(best.values) == 1:
            alone = f"one run shows no spread, and {alone}"
        return [("Which is best?", f"there is only one variant: {words}"), ("Is it sure?", alone)]
    if len(references) > 1:  # with `--by`, the reference differs between rows
        sure = f"{_shown(found.comparisons)}; each was compared where nothing else differs"
        return [("Which is best?", f"the best number is that of {words}"), ("Is it sure?", sure)]
    if not several:
        sure = "no: one seed each, so chance alone may explain every difference; 3 seeds of each would be a start"
        return [("Which is best?", f"the best number is that of {words}"), ("Is it sure?", sure)]
    if best is not several[0]:
        first = several[0]
        words += f"; of those with several seeds {first.name}: {first.mean:.5g}"
    # If no pair has a spread, nothing was compared.
    reference = several[0]
    if found.comparisons:
        reference = found.comparisons[0].reference
    return [("Which is best?", words), ("Is it sure?", _sure(reference, several, valued, found.comparisons))]


def _shown(comparisons: Sequence[Comparison]) -> str:
    shown = list(map(attrgetter("significant"), comparisons)).count(True)
    return f"{shown} of {len(comparisons)} differences are significant"


def _sure(
    reference: Variant, several: Sequence[Variant], valued: Sequence[Variant], pairs: Sequence[Comparison]
) -> str:
    """Return how the reference compares with all others, including those with one seed."""
    if len(several) == 1:
        return f"no: only {reference.name} has several seeds; 3 seeds of the others would be a start"
    if reference is not several[0]:
        return f"{_shown(pairs)}, each against {reference.name}"
    tied, others = ties(reference, several, pairs), len(several) - 1
    if tied:
        named = first_few(map(attrgetter("name"), tied), MOST_NAMED)
        words = f"no: {reference.name} has no significant difference from {named}"
        if len(tied) < others:
            apart = others - len(tied)
            words = f"in part: better than {apart} of {others} others, no significant difference from {named}"
        words += "".join(f" ({needed(pair)})" for pair in pairs if pair.other is tied[0])
    else:
        every = "the other one" if others == 1 else f"all {others} others"
        words = f"yes: {reference.name} is better than {every}, beyond what chance over seeds explains"
    single = len(valued) - len(several)
    if single:
        words += f"; no conclusion on {single} with one seed"
    return words


def _cost(found: Conclusion, valued: Sequence[Variant]) -> str:
    """Return the cost of the best variant, and which one took the least time."""
    best = valued[0]
    words = cost_words(best.counted) or "not known"
    name = best.name
    if len(best.counted) > 1:
        name += ", each run"
    least = best
    for variant in valued:
        if "seconds" not in variant.costs or "seconds" not in best.costs:
            return f"{name}: {words}"
        if variant.costs["seconds"] < least.costs["seconds"]:
            least = variant
    if least is best:
        return f"{name}: {words}; no other took less time"
    # Shown with its metric: the time saved may cost quality.
    fast = f"{least.name}, {duration(least.costs['seconds'])} ({least.mean:.5g} {found.group.unit})"
    return f"{name}: {words}; least time: {fast}"


def _differences(entries: Sequence[Entry]) -> str:
    """List the settings that differ, with their values; the seed is left out."""
    # Seeds differ within a variant, so they do not explain a difference between two.
    keys = differing(entries)
    if "seed" in keys:
        keys.remove("seed")
    if not keys:
        return "nothing but the seed"
    names = short_names(keys)
    words = []
    for key in keys[: 2 * MOST_NAMED]:
        values = {}
        for entry in entries:
            if key in entry.settings:
                values[written(entry.settings[key])] = entry.settings[key]
        words.append(f"{names[key]} ({_values(values)})")
    more = len(keys) - len(words)
    if more > 0:
        words[-1] += f" and {more} more settings"
    return ", ".join(words)


def _values(values: Mapping[str, Any]) -> str:
    """List the values of a setting, by their written form: all if they are few, the range of many numbers."""
    texts = dict(zip(values, map(brief, values.values()), strict=True))
    if len(set(texts.values())) < len(texts):  # rounding would make two of them look equal
        texts = dict(zip(values, values, strict=True))
    numbers = {key: number(value) for key, value in values.items()}
    if None in numbers.values():  # strings have no order
        return first_few(texts.values(), MOST_NAMED)
    in_order = sorted(numbers, key=numbers.__getitem__)  # type: ignore[arg-type]
    if len(in_order) <= MOST_NAMED:
        return ", ".join(texts[key] for key in in_order)
    return f"{len(in_order)} values from {brief(values[in_order[0]])} to {brief(values[in_order[-1]])}"


def _overfitting(valued: Sequence[Variant], endings: Endings) -> str:
    """Return whether the best variant overfits, and which others do."""
    words = ending_words(valued[0].name, valued[0].counted, endings)
    others, unknown = [], []
    for variant in valued[1:]:
        known = map(endings.get, map(id, variant.counted))
        judged = [ending.overfits for ending in known if ending is not None]
        if any(judged):
            others.append(variant.name)
        elif None in judged:
            unknown.append(variant.name)
    if others:
        words += f"; of the others: {first_few(others, MOST_NAMED)}"
    # Named, since leaving them out would suggest that they do not overfit.
    if unknown:
        words += f"; unknown for: {first_few(unknown, MOST_NAMED)}"
    return words


def _whole(found: Conclusion) -> Answers:
    """Return the status of unfinished runs; nothing if all runs have finished."""
    entries = found.group.entries
    if all(map(attrgetter("finished"), entries)):
        return []
    return [("Are all runs in?", f"no: {count_statuses(entries)}; only finished runs count")]
