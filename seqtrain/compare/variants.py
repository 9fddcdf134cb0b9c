"""The variants of a comparison: runs that differ only in their seed, folded to mean, spread and interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, NamedTuple

from seqtrain.compare.conditions import SPLITS, UNKNOWN
from seqtrain.compare.entries import AXES, BEST_OF, Axis, Checkpoint, Entry, mean_of, number, short_names
from seqtrain.compare.filters import ordered, written
from seqtrain.compare.folds import are_folds, half_width, tested_to_trained
from seqtrain.compare.groups import Group
from seqtrain.compare.names import HASH_DIGITS, ORIGIN, SEVERAL, Settings, by_value, variant_names
from seqtrain.compare.settings import deciding, is_path, last_word
from seqtrain.errors import UserError

CONFIDENCE = 0.95
# Relative difference below which two results are equal: another layout changes the order of sums.
ROUNDING = 1e-6
COSTS: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "seconds": "seconds", "flops": "FLOPs"}
MUCH_MORE = 2.0  # at equal x, a variant is left out if each other one came more than this many times as far


@dataclass(frozen=True)
class Variant:
    """Runs that differ only in their seed; `values` holds one number of each seed that finished."""

    name: str  # the settings that differ between variants, such as "lstm" or "lstm dim=64"
    entries: tuple[Entry, ...]  # all its runs, finished or not
    counted: tuple[Entry, ...]  # runs whose values count: finished, each seed once
    values: tuple[float, ...]
    costs: dict[Axis, float]  # means over the counted runs, up to the weights that were measured
    validations: float | None = (
        None  # mean number of validations a best value was chosen from; None if the last was taken
    )
    twins: tuple[tuple[Entry, ...], ...] = ()  # runs of several seeds with equal numbers: only the first counts
    settings: Settings = field(default_factory=dict)  # settings that all its runs share
    by: tuple[tuple[str, str], ...] = ()  # name and value of each key of `--by`
    limit: float | None = None  # the x at which all variants of the group were measured; None: each at its end
    left_out: str = ""  # sentence on a variant that has no value at equal x because it is too slow

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """The standard deviation over seeds; None with fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def parameters(self) -> float | None:
        """Mean number of parameters, also frozen ones, over the runs that count; None if one has not recorded it."""
        return mean_of(entry.parameters for entry in self.counted)

    @property
    def state(self) -> float | None:
        """Mean number of values that one lane carries; None if one of the runs that count has not recorded it."""
        return mean_of(entry.state for entry in self.counted)

    @property
    def num_parents(self) -> int:
        """Number of parent runs whose weights the runs that count started from; 1 if they have no parent."""
        return len({entry.summary.parent or repr(entry.settings.get(ORIGIN)) for entry in self.counted})

    @property
    def half(self) -> float | None:
        """Half of the mean's 95 % interval, by Student's t, corrected for folds; None with fewer than two seeds."""
        if self.sd is None:
            return None
        ratio = tested_to_trained(self.counted) if are_folds([self]) else 0.0
        return half_width(self.sd, len(self.values), ratio)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean; None with fewer than two seeds."""
        mean, half = self.mean, self.half
        return None if mean is None or half is None else (mean - half, mean + half)


class Measurement(NamedTuple):
    """The value of one run in its variant, and its cost."""

    entry: Entry
    value: float
    costs: dict[Axis, float]  # at the weights that were measured
    validations: int  # number of validations the value was chosen from


class Reach(NamedTuple):
    """End of a variant's slowest finished run on the axis of `--x`."""

    end: float  # the axis at the run's last validation
    run: str  # the run's name if another run of the variant came much further, otherwise empty


def variants(
    group: Group,
    *,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    by: Sequence[str] = (),
    against: str | None = None,
    fold_parents: bool = False,
) -> list[Variant]:
    """Fold the runs of a group over seeds; the best variant first, those without a value last.

    Args:
        group: the runs.
        x: each run's value is that of its last validation at or before the largest x that all of them reached, except
            variants that are left out because each other one came much further (see `too_slow`); None: the final one.
        checkpoint: `best` takes the best validation up to that x.
        by: keys from `names.resolved_by` that separate runs in addition to their settings.
        against: the name of a variant that is never left out, however slow it is.
        fold_parents: make one variant of runs that differ only in the run whose weights they started from.

    Raises:
        UserError: a run has no validation up to that x.
    """
    folded, settings = _folded(group, by, fold_parents)
    names = variant_names([entries[0] for entries in folded.values()], list(settings.values()), by)
    ends = {} if x is None else _reaches(group, dict(zip(names, folded.values(), strict=True)), x)
    slow = too_slow({name: reach.end for name, reach in ends.items()}, against)
    limit = min((reach.end for name, reach in ends.items() if name not in slow), default=None)
    found = []
    for name, (identity, entries) in zip(names, folded.items(), strict=True):
        measured = []
        for entry in entries:
            if entry.finished and not entry.altered and name not in slow:
                measured.append(_measure(entry, group, x, limit, checkpoint))
        counted, twins = _replicates([one for one in measured if one is not None])
        variant = _fold(name, entries, counted, checkpoint)
        words = tuple((word, settings[identity][key]) for key, word in short_names(by).items())
        sentence = _left_out(name, ends[name], limit, x) if name in slow and x is not None else ""
        found.append(
            replace(variant, twins=twins, settings=settings[identity], by=words, limit=limit, left_out=sentence)
        )
    return ordered(found, [variant.mean for variant in found], descending=group.mode == "max")


def too_slow(ends: Mapping[str, float], kept: str | None = None) -> set[str]:
    """Return the variants to leave out at equal x: fewer than half of all, if each other one came twice as far.

    The rule uses only the axis, never the metric.

    Args:
        ends: how far each variant came.
        kept: a variant that was named by the user: it is never left out, nor is any variant that came as far.
    """
    ranked = sorted((end, name) for name, end in ends.items())
    most = len(ranked) if kept is None or kept not in ends else ranked.index((ends[kept], kept))
    slow: set[str] = set()
    for count in range(1, min((len(ranked) - 1) // 2, most) + 1):
        # The last such gap counts: with three speeds, the two slower ones are both left out if they are few.
        if ranked[count][0] > MUCH_MORE * ranked[count - 1][0]:
            slow = {name for _, name in ranked[:count]}
    return slow


def _reaches(group: Group, folded: Mapping[str, Sequence[Entry]], x: Axis) -> dict[str, Reach]:
    """Return the reach of each variant that has finished runs.

    Raises:
        UserError: a finished run has no validation on this axis.
    """
    found = {}
    for name, entries in folded.items():
        ends = {}
        for entry in entries:
            if not entry.finished:
                continue
            xs = entry.curve(f"validation/{group.metric}", x)[0]
            if not xs:
                raise UserError(f"--x {x}: {entry.name} has no {group.metric} of validation against {x}; leave it out")
            ends[entry.name] = xs[-1]
        if ends:
            slowest = min(ends, key=ends.__getitem__)
            all_similar = max(ends.values()) < MUCH_MORE * ends[slowest]
            found[name] = Reach(ends[slowest], "" if all_similar else slowest)
    return found


def _left_out(name: str, reach: Reach, limit: float | None, x: Axis) -> str:
    """Return the sentence on a variant that was left out."""
    run = f" ({reach.run})" if reach.run else ""
    return (
        f"left out: {name} reached only {_amount(reach.end)} of {_amount(limit or 0.0)} {COSTS[x]}{run}: whether it is "
        f"better or worse than the others is not concluded; --against '{name}' compares all of them there"
    )


def _amount(amount: float) -> str:
    """Return an amount without a power of ten: 1,228,800, or 0.25 for a small one."""
    return f"{amount:,.0f}" if amount >= 1e5 else f"{amount:,.6g}"


def _folded(group: Group, by: Sequence[str], fold_parents: bool) -> tuple[dict[str, list[Entry]], dict[str, Settings]]:
    """Return the runs of each variant and its settings, both by the variant's identity."""
    own: dict[int, dict[str, Any]] = {}
    alike: dict[str, list[Entry]] = {}
    for entry in group.entries:
        settings_of = deciding(entry, by)
        if fold_parents:
            settings_of = without_origin(settings_of)
        own[id(entry)] = settings_of | {key: by_value(entry, key) for key in by}
        alike.setdefault(_identity(own[id(entry)]), []).append(entry)
    unlike = _unlike_conditions(group, alike.values())
    folded: dict[str, list[Entry]] = {}
    settings: dict[str, Settings] = {}
    for entry in group.entries:
        found = own[id(entry)]
        for name in unlike:
            value = group.measured[id(entry)].values[name]
            if value is not UNKNOWN:
                found[f"condition.{name}"] = _label(name, value, entry)
        identity = _identity(found)
        folded.setdefault(identity, []).append(entry)
        settings.setdefault(identity, found)
    return folded, settings


def without_origin(settings: Settings) -> dict[str, Any]:
    """Return the settings with the parent run's name replaced by a marker: only that there is a parent remains."""
    found = dict(settings)
    if found.get(ORIGIN) is not None:
        found[ORIGIN] = SEVERAL
    return found


def _unlike_conditions(group: Group, alike: Iterable[Sequence[Entry]]) -> list[str]:
    """Return the conditions in which runs with equal settings differ: such runs are not seeds of one variant.

    Paths are not settings, so two training texts differ in a condition only: without this check, `--across train`
    would fold runs on them like seeds.
    """
    names: dict[str, None] = {}
    for entries in alike:
        measured = [group.measured[id(entry)].values for entry in entries if group.measured]
        for name in measured[0] if measured else ():
            if len({repr(values[name]) for values in measured if values[name] is not UNKNOWN}) > 1:
                names[name] = None
    return list(names)


def _label(name: str, value: Any, entry: Entry) -> str:
    """Return a condition as part of a variant's name. A text is shown as its files and a short hash."""
    if isinstance(value, dict):
        return " ".join(f"{last_word(key)}={written(inner)[:HASH_DIGITS]}" for key, inner in value.items())
    files = []
    for key, path in entry.settings.items():
        if name in SPLITS and is_path(key) and isinstance(path, str):
            files.append(PurePath(path).name)
    return "@".join(filter(None, ["+".join(files), written(value)[:HASH_DIGITS]]))


def _identity(settings: Settings) -> str:
    """Return settings as one string, independent of their order in the file."""
    return repr(sorted((key, repr(value)) for key, value in settings.items()))


def _replicates(measured: Sequence[Measurement]) -> tuple[list[Measurement], tuple[tuple[Entry, ...], ...]]:
    """Return the measurements that count: the first of each seed, or fold, and the first of equal ones.

    Returns:
        The measurements that count, and the runs that count as one because their numbers are equal up to rounding.
        All metrics must be equal at each validation: a single value, such as an accuracy on few examples, may be
        equal by chance.
    """
    of_seed: dict[str, Measurement] = {}
    for one in measured:  # a seed that was run twice says nothing more
        of_seed.setdefault(repr(one.entry.replicate), one)
    counted: list[Measurement] = []
    equal: dict[int, list[Entry]] = {}  # by the index of the one that counts
    for one in of_seed.values():
        # Folds have different rows: if two give equal numbers, that is chance, and not a seed without effect.
        places = range(len(counted)) if one.entry.fold is None else ()
        place = next((place for place in places if _are_equal(one, counted[place])), None)
        if place is None:
            counted.append(one)
        else:
            equal.setdefault(place, [counted[place].entry]).append(one.entry)
    return counted, tuple(map(tuple, equal.values()))


def _are_equal(one: Measurement, other: Measurement) -> bool:
    """Return True if two runs have the same numbers up to rounding, at the end and at each validation."""
    here, there = one.entry, other.entry
    if not _are_near(one.value, other.value) or here.metrics.keys() != there.metrics.keys():
        return False
    if not all(_are_near(value, there.metrics[name]) for name, value in here.metrics.items()):
        return False
    for name in here.metrics:
        (steps, values), (other_steps, other_values) = (
            entry.curve(f"validation/{name}", "steps") for entry in (here, there)
        )
        if steps != other_steps or not all(map(_are_near, values, other_values)):
            return False
    return bool(here.records)  # a number in a file of results may be equal by chance


def _are_near(one: Any, other: Any) -> bool:
    """Return True if two values are equal, or are numbers that are equal up to rounding."""
    here, there = number(one), number(other)
    return one == other if here is None or there is None else math.isclose(here, there, rel_tol=ROUNDING)


def _fold(name: str, entries: list[Entry], measurements: list[Measurement], checkpoint: Checkpoint) -> Variant:
    """Return the variant of these runs, with the mean costs of the runs that were measured."""
    if not measurements:
        return Variant(name, tuple(entries), (), (), {})
    counted, values, costs, validations = zip(*measurements, strict=True)
    means: dict[Axis, float] = {}
    for axis in AXES:
        mean = mean_of(
            one.get(axis) for one in costs
        )  # None if a run lacks it: cost and value must be over the same runs
        if mean is not None:
            means[axis] = mean
    chosen_from = statistics.fmean(validations) if checkpoint == "best" else None
    return Variant(name, tuple(entries), counted, values, means, chosen_from)


def _measure(
    entry: Entry, group: Group, x: Axis | None, limit: float | None, checkpoint: Checkpoint
) -> Measurement | None:
    """Return a run's value and its cost at that point, or None. Raise UserError if no validation is within `limit`."""
    costs: dict[Axis, float] = {}
    if limit is None and checkpoint == "final":
        value = entry.metric(group.metric)
        for axis in AXES:
            cost = entry.cost(axis)
            if cost is not None:
                costs[axis] = cost
        return None if value is None else Measurement(entry, value, costs, 1)
    name = f"validation/{group.metric}"
    xs, values = entry.curve(name, x or "steps")
    places = [place for place, end in enumerate(xs) if limit is None or end <= limit]
    if not places:
        if limit is None:
            return None
        raise UserError(
            f"--x {x}: {entry.name} has no validation before {x}={limit:,.6g}, where another run ends; "
            "set a smaller trainer.validate_every, or leave --x out"
        )
    chosen = places[-1]
    if checkpoint == "best":
        chosen = BEST_OF[group.mode](places, key=values.__getitem__)
    for axis in AXES:
        ends = entry.curve(name, axis)[0]
        if ends:
            costs[axis] = ends[chosen]
    return Measurement(entry, values[chosen], costs, len(places))
