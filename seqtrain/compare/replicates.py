"""Which runs of a variant are replicates: equal numbers, extended runs, other code and other machines among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from seqtrain.compare.by import codes, short_commit
from seqtrain.compare.entries import Entry
from seqtrain.compare.filters import written
from seqtrain.compare.settings import LAYOUT, is_extended

MOST_EQUAL = 3  # variants of the same numbers that are named


class Measured(Protocol):
    """What one run gives to its variant."""

    @property
    def entry(self) -> Entry:
        """The run."""
        ...

    @property
    def value(self) -> float:
        """Its number."""
        ...


M = TypeVar("M", bound=Measured)


class Twins(NamedTuple):
    """Runs of several seeds that gave the same numbers to the last digit; the first of them counts."""

    entries: tuple[Entry, ...]


class Folded(Protocol):
    """The part of a variant that these sentences are about."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All its runs."""
        ...

    @property
    def counted(self) -> tuple[Entry, ...]:
        """Those whose values count."""
        ...

    @property
    def twins(self) -> tuple[Twins, ...]:
        """Those that count as one."""
        ...


def replicates(measured: Sequence[M]) -> tuple[list[M], tuple[Twins, ...]]:
    """The measurements that count: of each seed the first, and of equal ones the first.

    Returns:
        Those that count, and the runs that were taken for one because their numbers are equal to the last digit. One
        value may be equal by chance, as an accuracy of few examples is: all of their metrics have to be.
    """
    of_seed: dict[str, M] = {}
    for one in measured:  # a seed that was run twice says nothing more
        of_seed.setdefault(repr(one.entry.seed), one)
    counted: list[M] = []
    equal: dict[int, list[Entry]] = {}  # by the place of the one that counts
    for one in of_seed.values():
        for place, other in enumerate(counted):
            if _same_numbers(one, other):
                equal.setdefault(place, [other.entry]).append(one.entry)
                break
        else:
            counted.append(one)
    return counted, tuple(Twins(tuple(entries)) for entries in equal.values())


def replicate_caveats(variants: Sequence[Folded]) -> list[str]:
    """What a reader must know of runs that were folded to variants, or were kept out of them: a sentence each."""
    lines: list[str] = []
    for variant in variants:
        for twins in variant.twins:
            lines.append(_twins_sentence(variant.name, twins))
    lines += _without_effect(variants)
    lines += _extended(variants)
    for variant in variants:
        lines += _several_codes(variant)
    counted: list[Entry] = []
    for variant in variants:
        counted += variant.counted
    return lines + _unlike_machines(counted)


def _same_numbers(one: Measured, other: Measured) -> bool:
    """Whether two runs have the same numbers to the last digit, at the end and at each validation."""
    here, there = one.entry, other.entry
    if one.value != other.value or dict(here.metrics) != dict(there.metrics):
        return False
    for name in here.metrics:
        key = f"validation/{name}"
        if here.curve(key, "steps") != there.curve(key, "steps"):
            return False
    return True


def _twins_sentence(name: str, twins: Twins) -> str:
    seeds = _listed([written(entry.seed) for entry in twins.entries])
    runs = ", ".join(entry.name for entry in twins.entries)
    return (
        f"{name}: seeds {seeds} gave the same numbers to the last digit ({runs}): the seed changed nothing, "
        "so they count as one"
    )


def _without_effect(variants: Sequence[Folded]) -> list[str]:
    """A sentence for each set of variants whose runs have the same numbers, seed for seed."""
    equal: dict[str, list[str]] = {}  # by the numbers, who had them
    for variant in variants:
        numbers = sorted((repr(entry.seed), sorted(entry.metrics.items())) for entry in variant.counted)
        if variant.counted:
            equal.setdefault(repr(numbers), []).append(variant.name)
    lines = []
    for names in equal.values():
        if len(names) == 1:
            continue
        listed = _listed(names)
        if len(names) > MOST_EQUAL:  # of many trials a line must stay one that is read
            listed = f"{', '.join(names[:MOST_EQUAL])} and {len(names) - MOST_EQUAL} more"
        lines.append(f"{listed} gave the same numbers to the last digit: what differs between them changed nothing")
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


def _several_codes(variant: Folded) -> list[str]:
    """A sentence where the runs of a variant were trained with unlike code, and where one of them was."""
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
    """A sentence where seconds are of unlike machines, or of unlike layouts on one."""
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
    """`a`, `a and b`, `a, b and c`."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"
