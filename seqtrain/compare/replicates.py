"""Replicates of a variant: runs with equal numbers, extended runs, other code and other machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from seqtrain.compare.by import codes, short_commit
from seqtrain.compare.entries import Entry, number
from seqtrain.compare.filters import written
from seqtrain.compare.parents import ORIGIN, has_several, without_origin
from seqtrain.compare.settings import LAYOUT, is_extended
from seqtrain.errors import first_few

# Of a number's size: below it lies what another layout, or another order of sums, makes of the same training.
ROUNDING = 1e-6
MOST_NAMED = 4  # that a sentence names
MOST_EQUAL = 3  # variants of the same numbers that are named


class Measured(Protocol):
    """The measurement of one run in its variant."""

    @property
    def entry(self) -> Entry:
        """Run of the measurement."""
        ...

    @property
    def value(self) -> float:
        """Number of the measurement."""
        ...


M = TypeVar("M", bound=Measured)


class Twins(NamedTuple):
    """Runs of several seeds with equal numbers but for rounding; the first of them counts."""

    entries: tuple[Entry, ...]
    exact: bool = True  # to the last digit


class Folded(Protocol):
    """The part of a variant that these sentences need."""

    @property
    def name(self) -> str:
        """Name of the variant."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that identify the variant."""
        ...

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All runs of the variant."""
        ...

    @property
    def counted(self) -> tuple[Entry, ...]:
        """Runs whose values count."""
        ...

    @property
    def twins(self) -> tuple[Twins, ...]:
        """Runs that count as one."""
        ...

    @property
    def values(self) -> tuple[float, ...]:
        """Values of `counted`."""
        ...


def replicates(measured: Sequence[M]) -> tuple[list[M], tuple[Twins, ...]]:
    """Return the measurements that count: the first of each seed, or fold, and the first of equal ones.

    Returns:
        Those that count, and the runs that were taken for one because their numbers are equal but for rounding, as
        another layout makes it. One value may be equal by chance, as an accuracy of few examples is: all of their
        metrics have to be, at each validation.
    """
    of_seed: dict[str, M] = {}
    for one in measured:  # a seed that was run twice says nothing more
        of_seed.setdefault(repr(one.entry.replicate), one)
    counted: list[M] = []
    equal: dict[int, list[Entry]] = {}  # by the place of the one that counts
    for one in of_seed.values():
        for place, other in enumerate(counted):
            # Folds are unlike rows: equal numbers of two are chance, and not a seed without effect.
            if one.entry.fold is None and _same_numbers(one, other):
                equal.setdefault(place, [other.entry]).append(one.entry)
                break
        else:
            counted.append(one)
    twins = []
    for entries in equal.values():
        exact = all(_same_metrics(entries[0], entry, 0.0) for entry in entries[1:])
        twins.append(Twins(tuple(entries), exact))
    return counted, tuple(twins)


def replicate_caveats(variants: Sequence[Folded]) -> list[str]:
    """Return caveats on runs that were folded to variants, or were kept out of them: a sentence each."""
    lines: list[str] = []
    for variant in variants:
        for twins in variant.twins:
            lines.append(_twins_sentence(variant.name, twins))
    lines += _without_effect(variants)
    lines += _extended(variants)
    for variant in variants:
        lines += [*_survivors(variant), *_several_codes(variant)]
    lines += [*_one_parent(variants), *_many_parents(variants)]
    counted: list[Entry] = []
    for variant in variants:
        counted += variant.counted
    return lines + _unlike_machines(counted)


def _same_numbers(one: Measured, other: Measured) -> bool:
    """Return True if two runs have the same numbers but for rounding, at the end and at each validation."""
    here, there = one.entry, other.entry
    if not _are_near(one.value, other.value, ROUNDING) or not _same_metrics(here, there, ROUNDING):
        return False
    for name in here.metrics:
        key = f"validation/{name}"
        (steps, values), (other_steps, other_values) = here.curve(key, "steps"), there.curve(key, "steps")
        if steps != other_steps:
            return False
        for value, other_value in zip(values, other_values, strict=True):
            if not _are_near(value, other_value, ROUNDING):
                return False
    return True


def _same_metrics(one: Entry, other: Entry, tolerance: float) -> bool:
    """Return True if the final metrics of two runs are equal within a relative tolerance."""
    if one.metrics.keys() != other.metrics.keys():
        return False
    return all(_are_near(value, other.metrics[name], tolerance) for name, value in one.metrics.items())


def _are_near(one: Any, other: Any, tolerance: float) -> bool:
    """Return True if two values are equal, or are numbers that are equal within a relative tolerance."""
    here, there = number(one), number(other)
    if here is None or there is None:
        return one == other
    return math.isclose(here, there, rel_tol=tolerance)


def _twins_sentence(name: str, twins: Twins) -> str:
    seeds = _listed([written(entry.seed) for entry in twins.entries])
    runs = ", ".join(entry.name for entry in twins.entries)
    how_far = "to the last digit" if twins.exact else "but for rounding"
    return (
        f"{name}: seeds {seeds} gave the same numbers {how_far} ({runs}): the seed changed nothing, "
        "so they count as one"
    )


def _without_effect(variants: Sequence[Folded]) -> list[str]:
    """A sentence for each set of variants whose runs have the same numbers, seed for seed."""
    equal: dict[str, list[str]] = {}  # by the numbers, who had them
    for variant in variants:
        numbers = []
        # The value as well: of other validations the best may be another one.
        for entry, value in zip(variant.counted, variant.values, strict=True):
            numbers.append((repr(entry.replicate), value, sorted(entry.metrics.items())))
        numbers.sort()
        if variant.counted:
            equal.setdefault(repr(numbers), []).append(variant.name)
    lines = []
    for names in equal.values():
        if len(names) == 1:
            continue
        # Of many trials a line must stay one that is read.
        words = first_few(names, MOST_EQUAL) if len(names) > MOST_EQUAL else _listed(names)
        lines.append(f"{words} gave the same numbers to the last digit: what differs between them changed nothing")
    return lines


def _extended(variants: Sequence[Folded]) -> list[str]:
    """A sentence for each variant of runs that were extended."""
    lines = []
    for variant in variants:
        first = variant.entries[0]
        if is_extended(first):
            changes = first.summary.extended
            lines.append(
                f"{variant.name}: extended ({'; '.join(map(str, changes))}): until then its schedule was that of the "
                "shorter training, so it is not folded with runs that were planned so long"
            )
    return lines


def _survivors(variant: Folded) -> list[str]:
    """Return a sentence if seeds of a variant failed: the mean of the others is too good for the variant."""
    counted = {repr(entry.seed) for entry in variant.counted}
    failed = {repr(entry.seed) for entry in variant.entries if entry.status == "failed"} - counted
    if not failed or not counted:
        return []
    return [
        f"{variant.name}: {len(failed)} of {len(failed) + len(counted)} seeds failed, and the verdict is on those that "
        "came through"
    ]


def _one_parent(variants: Sequence[Folded]) -> list[str]:
    """Return a sentence if all seeds of a variant started from one run: its own chance is in no interval."""
    names = []
    for variant in variants:
        began = len(variant.counted) > 1 and variant.counted[0].settings.get(ORIGIN) is not None
        if began and not has_several(variant):
            names.append(variant.name)
    if not names:
        return []
    return [
        f"{first_few(names, MOST_NAMED)}: all seeds began with the weights of one run (init_from); what another seed "
        "of that run would bring is in no interval"
    ]


def _many_parents(variants: Sequence[Folded]) -> list[str]:
    """Return a sentence if variants of one seed each differ only in the run whose weights they started from."""
    alike: dict[str, list[str]] = {}
    for variant in variants:
        if len(variant.counted) == 1 and variant.settings.get(ORIGIN) is not None:
            alike.setdefault(repr(sorted(map(repr, without_origin(variant.settings).items()))), []).append(variant.name)
    return [
        f"{first_few(names, MOST_NAMED)} differ in init_from alone; --across init_from makes one variant of them"
        for names in alike.values()
        if len(names) > 1
    ]


def unlike_codes(variants: Sequence[Folded]) -> list[str]:
    """Return a sentence if each variant was trained with one code, and not all with the same."""
    found: dict[str, str] = {}  # by the code, the first variant of it
    for variant in variants:
        own = {tuple(codes(entry)) for entry in variant.counted}
        if len(own) > 1 or () in own:
            return []  # several in one variant are said of that, and what says nothing of its code is like any
        for code in own:
            found.setdefault(" and ".join(map(short_commit, code)), variant.name)
    if len(found) < 2:
        return []
    words = [f"{name} of commit {code}" for code, name in found.items()]
    return [
        f"the code is not the same: {first_few(words, MOST_NAMED)}; a difference may come of it; --by commit names it"
    ]


def _several_codes(variant: Folded) -> list[str]:
    """Return a sentence if the runs of a variant were trained with different code, or one run of it was."""
    lines = []
    found: dict[str, None] = {}
    for entry in variant.entries:
        if not entry.finished:
            continue
        own = list(map(short_commit, codes(entry)))
        if own:
            found[" and ".join(own)] = None
        if len(own) > 1:
            lines.append(f"{entry.name}: went on with other code: commits {', then '.join(own)}")
    if len(found) > 1:
        lines.append(f"{variant.name}: its runs are of commits {_listed(list(found))}; --by commit sets them apart")
    return lines


def _unlike_machines(entries: Sequence[Entry]) -> list[str]:
    """Return a sentence if seconds were measured on different machines, or different layouts of one."""
    asked: dict[str, Callable[[Entry], Any]] = {"cpu": _cpu, "cores": _cores, "processes": _processes}
    words = []
    for key in LAYOUT:
        words += _unlike(key, [_of_config(entry, key) for entry in entries])
    for name, value_of in asked.items():
        words += _unlike(name, [value_of(entry) for entry in entries])
    if not words:
        return []
    return [f"seconds and tokens/s are of unlike machines or layouts: {', '.join(words)}"]


def _unlike(name: str, values: Sequence[Any]) -> list[str]:
    """The name with its values where there are several."""
    found: dict[str, None] = {}
    for value in values:
        if value is not None:
            found[written(value)] = None
    return [f"{name} {_listed(list(found))}"] if len(found) > 1 else []


def _cpu(entry: Entry) -> Any:
    return entry.summary.cpu


def _cores(entry: Entry) -> Any:
    return entry.summary.cores


def _processes(entry: Entry) -> Any:
    return entry.summary.world_size


def _of_config(entry: Entry, key: str) -> Any:
    group, _, word = key.partition(".")
    node = entry.config.get(group)
    return node.get(word) if isinstance(node, dict) else None


def _listed(words: Sequence[str]) -> str:
    """Return the words as `a`, `a and b`, `a, b and c`."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"
