"""Caveats of a comparison: each rule checks a group and its variants, and yields sentences if it applies.

NOTES are printed above a group's table, CAVEATS below its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seqtrain.compare.baselines import baseline_caveats
from seqtrain.compare.entries import Axis, Entry
from seqtrain.compare.filters import as_number, written
from seqtrain.compare.groups import Group
from seqtrain.compare.names import COMMIT, LABEL, ORIGIN, TAG, codes, differences_line, short_commit
from seqtrain.compare.settings import LAYOUT, deciding, differing_keys, is_extended
from seqtrain.compare.variants import Variant, without_origin
from seqtrain.errors import first_few
from seqtrain.runs import measures
from seqtrain.runs.evaluations import EVALUATIONS

UNLIKE_STEPS = 0.1  # relative difference of tokens a step: batches of examples are never quite equal
MOST_NAMED = 4  # variants that a sentence names
MOST_EQUAL = 3  # variants of the same numbers that a sentence names
FEWEST_TRIED = 3  # values of an option: with fewer, none is between two others


@dataclass(frozen=True)
class Case:
    """Subject of a rule."""

    group: Group
    variants: Sequence[Variant] = ()
    by: Sequence[str] = ()  # keys of `--by`
    parts: Sequence[Sequence[Variant]] = ()  # the variants that were compared with each other, from `verdict.strata`
    x: Axis | None = None
    hidden: Sequence[Entry] = ()  # finished runs that `--where` left out
    untested: int = 0  # runs that `--split test` left out


Rule = Callable[[Case], Iterator[str]]


def notes(case: Case) -> list[str]:
    """Return the notes on how a group was measured."""
    return [sentence for rule in NOTES for sentence in rule(case)]


def caveats(case: Case) -> list[str]:
    """Return the caveats on the variants of a group."""
    return [sentence for rule in CAVEATS for sentence in rule(case)]


# -- on a group ----------------------------------------------------------------------------------------------------


def _unlike_reading(case: Case) -> Iterator[str]:
    """Yield a note if runs of a group read text in different ways that the metric does not depend on."""
    entries, group = case.group.entries, case.group
    summary = entries[0].summary
    if entries[0].fold is not None:  # each has rows and a vocabulary of its own
        return
    tokenizers = len({str(entry.summary.hashes.get("tokenizer")) for entry in entries} - {"None"})
    words = [f"{tokenizers} tokenizers"] if tokenizers > 1 else []
    if not group.conditions.of_answers:
        # Where --across has folded tokenizers, the verdict says what that means.
        if words and measures.tokenizer_free(summary, group.metric):
            yield f"{words[0]}: compared in {group.unit} only"
        return
    for key in dict.fromkeys(key for entry in entries for key in entry.summary.context or ()):
        words += _several(key, [(entry.summary.context or {}).get(key) for entry in entries])
    for option in sorted(summary.answered_by or ()):
        words += _several(option, [entry.settings.get(f"task.{option}") for entry in entries])
    if words:
        yield f"{group.unit} counts whole answers to the same examples, so runs of {', '.join(words)} are compared"


def _leaks(case: Case) -> Iterator[str]:
    """Yield notes on validation text that training may have read, each with the runs it applies to."""
    runs: dict[str, list[str]] = {}
    for entry in case.group.entries:
        for note in entry.leak_notes:
            runs.setdefault(note, []).append(entry.name)
    for note, names in runs.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{note} ({'all runs' if len(names) == len(case.group.entries) else names[0] + others})"


def _hidden_seeds(case: Case) -> Iterator[str]:
    """Yield a note if `--where` hides runs of a variant that it keeps: chosen seeds can support any conclusion."""
    if not case.hidden:
        return
    kept = set(map(_alike, case.group.entries))
    count = sum(_alike(entry) in kept for entry in case.hidden)
    if count:
        runs = "1 finished run" if count == 1 else f"{count} finished runs"
        yield (
            f"--where hides {runs} of the same variants: seeds that were chosen after a look at their results prove "
            "nothing"
        )


def _alike(entry: Entry) -> str:
    """Return a key that runs share if only their seeds differ: it holds their settings and the text they read."""
    return repr((sorted(map(repr, deciding(entry).items())), sorted(map(repr, entry.summary.hashes.items()))))


def _test_evaluations(case: Case) -> Iterator[str]:
    """Yield a note if runs were evaluated on test more than once."""
    if case.group.split != "test":
        return
    entries = case.group.entries
    looks = [entry.kept.looks("test", entry.evaluation and entry.evaluation.test_set) for entry in entries]
    most = max(looks)
    if most > 1:
        words = f"{most} times in each run"
        if min(looks) < most:
            words = f"{min(looks)} to {most} times in a run (most often in {entries[looks.index(most)].name})"
        yield f"test split evaluated {words}: choices made after the first one make these results optimistic"


def _untested(case: Case) -> Iterator[str]:
    """Yield a note if runs without test results were left out: without the bad runs, results look too good."""
    if case.group.split == "test" and case.untested:
        runs = "1 run was" if case.untested == 1 else f"{case.untested} runs were"
        yield f"{runs} left out: no test results"


def _torn_lines(case: Case) -> Iterator[str]:
    """Yield a note on each run with unreadable lines among its evaluations: these lines are not counted."""
    for entry in case.group.entries if case.group.split == "test" else ():
        if entry.kept.unreadable:
            yield f"{entry.name}/{EVALUATIONS}: unreadable lines left out: {entry.kept.unreadable}"


# -- on its variants -----------------------------------------------------------------------------------------------


def _other_settings(case: Case) -> Iterator[str]:
    """Yield a caveat if variants differ in settings that their names do not show."""
    firsts = [variant.entries[0] for variant in case.variants]
    line = differences_line(firsts, [variant.settings for variant in case.variants], case.by)
    if line:
        yield line


def _by_keys(case: Case) -> Iterator[str]:
    """Yield a caveat if other settings differ as well, if the keys of `--by` never differ, or if they are labels.

    Another caveat gives the number of comparisons, if there are several.
    """
    if not case.by:
        return
    start = f"--by {','.join(case.by)}"
    found: dict[str, None] = {}
    for part in case.parts:
        keys = differing_keys([variant.settings for variant in part])
        others = [key for key in keys if key not in case.by]
        if len(part) > 1 and len(others) == len(keys):
            found[f"{start}: it is the same in all of these runs"] = None
        elif others:
            found[f"{start}: these differ in {', '.join(others)} as well"] = None
        elif len(part) > 1 and all(key in (LABEL, TAG) for key in keys):
            found[
                f"{start}: no recorded setting differs; if the names were given after a look at the results, they "
                "make the difference themselves"
            ] = None
    yield from found
    several = sum(len(part) > 1 for part in case.parts)
    if several > 1:
        yield (
            f"{start}: variants are compared where nothing else differs; that makes {several} "
            "comparisons, each at 95 % by itself"
        )


def _best_at_an_end(case: Case) -> Iterator[str]:
    """Yield a caveat for each best variant whose value of a `--by` key is the smallest or largest one tried.

    Of three or more values, such as learning rates, the best should be between two others; otherwise a value beyond
    may be better still.
    """
    for key in case.by:
        if key in (COMMIT, LABEL, TAG, "seed", *LAYOUT):
            continue
        for part in case.parts:
            values = [as_number(variant.settings.get(key)) for variant in part if variant.values]
            tried = {value for value in values if value is not None}
            if len(tried) >= FEWEST_TRIED and None not in values and values[0] in (min(tried), max(tried)):
                side = "smaller" if values[0] == min(tried) else "larger"
                yield f"{part[0].name}: no {side} {key} was tried; a {side} one may be better"


def _equal_seeds(case: Case) -> Iterator[str]:
    """Yield a caveat for each set of seeds of a variant that gave the same numbers."""
    for variant in case.variants:
        for twins in variant.twins:
            seeds = _listed([written(entry.seed) for entry in twins])
            runs = ", ".join(entry.name for entry in twins)
            yield (
                f"{variant.name}: seeds {seeds} gave the same numbers ({runs}): the seed changed nothing, so they "
                "count as one"
            )


def _equal_variants(case: Case) -> Iterator[str]:
    """Yield a caveat for each set of variants that gave the same numbers, seed for seed."""
    equal: dict[str, list[Variant]] = {}  # by their numbers
    for variant in case.variants:
        numbers = []
        # The value as well: with --best it may be from another validation.
        for entry, value in zip(variant.counted, variant.values, strict=True):
            numbers.append((repr(entry.replicate), value, sorted(entry.metrics.items())))
        if numbers:
            equal.setdefault(repr(sorted(numbers)), []).append(variant)
    for variants in equal.values():
        names = [variant.name for variant in variants]
        # Numbers without a learning curve, from a file of results, may be equal by chance.
        if len(names) > 1 and variants[0].counted[0].records:
            words = first_few(names, MOST_EQUAL) if len(names) > MOST_EQUAL else _listed(names)
            yield f"{words} gave the same numbers to the last digit: what differs between them changed nothing"


def _extended(case: Case) -> Iterator[str]:
    """Yield a caveat for each variant whose runs were extended: their learning rates differ from all other runs."""
    for variant in case.variants:
        if is_extended(variant.entries[0]):
            changes = "; ".join(map(str, variant.entries[0].summary.extended))
            yield (
                f"{variant.name}: extended ({changes}): until then its schedule was that of the shorter training, so "
                "it is a variant apart from runs that were planned at this length"
            )


def _failed_seeds(case: Case) -> Iterator[str]:
    """Yield a caveat for each variant with failed seeds: the mean over the other seeds is too optimistic."""
    for variant in case.variants:
        counted = {repr(entry.seed) for entry in variant.counted}
        failed = {repr(entry.seed) for entry in variant.entries if entry.status == "failed"} - counted
        if failed and counted:
            yield (
                f"{variant.name}: {len(failed)} of {len(failed) + len(counted)} seeds failed, and the verdict is on "
                "the others"
            )


def _several_codes(case: Case) -> Iterator[str]:
    """Yield a caveat if runs of a variant, or parts of one run, were trained with different code."""
    for variant in case.variants:
        found: dict[str, None] = {}
        for entry in filter(lambda entry: entry.finished, variant.entries):
            own = list(map(short_commit, codes(entry)))
            if own:
                found[" and ".join(own)] = None
            if len(own) > 1:
                yield f"{entry.name}: resumed with other code: commits {', then '.join(own)}"
        if len(found) > 1:
            yield f"{variant.name}: its runs are of commits {_listed(list(found))}; --by commit separates them"


def _one_parent(case: Case) -> Iterator[str]:
    """Yield a caveat if all seeds of a variant started from one run: its own seed adds no spread to the interval."""
    names = []
    for variant in case.variants:
        began = len(variant.counted) > 1 and variant.counted[0].settings.get(ORIGIN) is not None
        if began and variant.num_parents == 1:
            names.append(variant.name)
    if names:
        yield (
            f"{first_few(names, MOST_NAMED)}: all seeds began with the weights of one run (init_from); the intervals "
            "do not cover other seeds of that run"
        )


def _many_parents(case: Case) -> Iterator[str]:
    """Yield a caveat if variants of one seed each differ only in the run whose weights they started from."""
    alike: dict[str, list[str]] = {}
    for variant in case.variants:
        if len(variant.counted) == 1 and variant.settings.get(ORIGIN) is not None:
            alike.setdefault(repr(sorted(map(repr, without_origin(variant.settings).items()))), []).append(variant.name)
    for names in alike.values():
        if len(names) > 1:
            yield (
                f"{first_few(names, MOST_NAMED)} differ in init_from alone; --across init_from makes one variant of "
                "them"
            )


def _unlike_machines(case: Case) -> Iterator[str]:
    """Yield a caveat if seconds were measured on different machines, or different layouts of one."""
    entries = [entry for variant in case.variants for entry in variant.counted]
    words = []
    for key in LAYOUT:
        group, _, word = key.partition(".")
        nodes = [entry.config.get(group) for entry in entries]
        words += _several(key, [node.get(word) if isinstance(node, dict) else None for node in nodes])
    words += _several("cpu", [entry.summary.cpu for entry in entries])
    words += _several("cores", [entry.summary.cores for entry in entries])
    words += _several("processes", [entry.summary.world_size for entry in entries])
    if words:
        yield f"seconds and tokens/s are of different machines or layouts: {', '.join(words)}"


def _unlike_tokens(case: Case) -> Iterator[str]:
    """Yield a caveat at equal tokens if tokenizers differ: equal numbers of tokens are not equal amounts of text."""
    counted = [variant.counted[0] for variant in case.variants if variant.counted]
    tokenizers = {str(entry.summary.hashes.get("tokenizer")) for entry in counted}
    if case.x == "tokens" and len(tokenizers) > 1:
        yield (
            f"--x tokens: {len(tokenizers)} tokenizers cut text differently, so equal tokens are not equal text; "
            "--x flops and --x seconds do not depend on the tokenizer"
        )


def _unlike_steps(case: Case) -> Iterator[str]:
    """Yield a caveat at equal steps if batches differ in size: equal numbers of steps are not equal amounts of text."""
    costs = [variant.costs for variant in case.variants if variant.counted and variant.costs.get("steps")]
    sizes = [cost["tokens"] / cost["steps"] for cost in costs]
    if case.x == "steps" and sizes and max(sizes) - min(sizes) > UNLIKE_STEPS * max(sizes):
        yield (
            f"--x steps: a step trains on {min(sizes):,.0f} to {max(sizes):,.0f} tokens, so equal steps are not "
            "equal text"
        )


def _unlike_codes(case: Case) -> Iterator[str]:
    """Yield a caveat if each variant was trained with one code, but not all with the same."""
    found: dict[str, str] = {}  # by the code, the first variant of it
    for variant in case.variants if COMMIT not in case.by else ():
        own = {tuple(codes(entry)) for entry in variant.counted}
        if len(own) > 1 or () in own:
            return  # `_several_codes` reports several in one variant; unknown code agrees with all
        for code in own:
            found.setdefault(" and ".join(map(short_commit, code)), variant.name)
    if len(found) > 1:
        words = first_few((f"{name} of commit {code}" for code, name in found.items()), MOST_NAMED)
        yield f"the code differs: {words}; a difference may come from it; --by commit shows it in the names"


def _baselines(case: Case) -> Iterator[str]:
    """Yield caveats on the best variant compared with the baselines; see `baseline_caveats`."""
    yield from baseline_caveats(case.group, case.variants)


NOTES: tuple[Rule, ...] = (_unlike_reading, _leaks, _hidden_seeds, _test_evaluations, _untested, _torn_lines)
CAVEATS: tuple[Rule, ...] = (
    *(_other_settings, _by_keys, _best_at_an_end, _equal_seeds, _equal_variants, _extended, _failed_seeds),
    *(_several_codes, _one_parent, _many_parents, _unlike_machines, _unlike_tokens, _unlike_steps, _unlike_codes),
    _baselines,
)


def _several(name: str, values: Sequence[Any]) -> list[str]:
    """Return `name a and b` if there are several values."""
    found = list(dict.fromkeys(written(value) for value in values if value is not None))
    return [f"{name} {_listed(found)}"] if len(found) > 1 else []


def _listed(words: Sequence[str]) -> str:
    """Return the words as `a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
