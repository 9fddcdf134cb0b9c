"""The variants of a comparison: runs that differ only in their seed, folded to mean, spread and interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from seqtrain.compare.by import by_names, by_value
from seqtrain.compare.entries import AXES, BEST_OF, Axis, Checkpoint, Entry
from seqtrain.compare.folds import are_folds, half_width, tested_to_trained
from seqtrain.compare.guard import Group
from seqtrain.compare.names import Settings, variant_names
from seqtrain.compare.parents import without_origin
from seqtrain.compare.reach import Reach, left_out_sentence, reaches, too_slow
from seqtrain.compare.replicates import Twins, replicates
from seqtrain.compare.selection import ordered
from seqtrain.compare.settings import deciding
from seqtrain.compare.told_apart import told_apart
from seqtrain.errors import UserError

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Variant:
    """Runs that differ only in their seed; `values` holds one number of each seed that finished."""

    name: str  # what differs from other variants, such as "lstm" or "lstm dim=64"
    entries: tuple[Entry, ...]  # all its runs, finished or not
    counted: tuple[Entry, ...]  # those whose values count: finished, each seed once
    values: tuple[float, ...]
    costs: dict[Axis, float]  # means over what counts, at the weights that were measured
    validations: float | None = None  # of which each value is the best, on the mean; None where it is the last
    twins: tuple[Twins, ...] = ()  # runs of several seeds with equal numbers, of which one counts
    settings: Settings = field(default_factory=dict)  # what makes it this variant
    by: tuple[tuple[str, str], ...] = ()  # what its runs say of each key of `--by`: its name, and the value
    limit: float | None = None  # the x at which all variants of the group were measured; None: each at its end
    left_out: str = ""  # why it has no value at equal x, in a sentence: it is too slow

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """The standard deviation over seeds; None of fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def parameters(self) -> float | None:
        """Mean number of trainable parameters of the runs that count; None if one of them does not know it."""
        known = [entry.parameters for entry in self.counted if entry.parameters is not None]
        return statistics.fmean(known) if known and len(known) == len(self.counted) else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean, by Student's t, corrected for folds; None with fewer than two seeds."""
        if self.mean is None or self.sd is None:
            return None
        if are_folds([self]):
            half = half_width(self.sd, len(self.values), tested_to_trained(self.counted))
            return self.mean - half, self.mean + half
        from scipy.special import stdtrit

        half = float(stdtrit(len(self.values) - 1, (1 + CONFIDENCE) / 2)) * self.sd / math.sqrt(len(self.values))
        return self.mean - half, self.mean + half


class Measurement(NamedTuple):
    """The value of one run in its variant, and its cost."""

    entry: Entry
    value: float
    costs: dict[Axis, float]  # at the weights that were measured
    validations: int  # that the value was chosen from


def variants(
    group: Group,
    *,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    by: Sequence[str] = (),
    against: str | None = None,
    fold_parents: bool = False,
) -> list[Variant]:
    """The runs of a group folded over seeds, the best first and those without a value last.

    Args:
        x: each run's value is that of its last validation at or before the largest x that all of them reached, but for
            those of variants that are left out because each other one came much further (see `reach.too_slow`); None:
            the final one.
        checkpoint: `best` takes the best validation up to there.
        by: keys, as `by.resolved_by` gives them, that set runs apart beside their settings.
        against: the name of a variant that is not left out, however slow it is.
        fold_parents: runs that differ in whose weights they began with are one variant.

    Raises:
        UserError: where a run has no validation so early.
    """
    folded, settings = _folded(group, by, fold_parents)
    names = variant_names([entries[0] for entries in folded.values()], list(settings.values()), by)
    by_name = dict(zip(folded, names, strict=True))
    ends: dict[str, Reach] = {} if x is None else reaches(group, folded, x)
    asked = next((identity for identity, name in by_name.items() if name == against), None)
    slow = too_slow(ends, asked)
    limit = _limit(ends, slow)
    found = []
    for identity, entries in folded.items():
        measured = []
        for entry in entries:
            if entry.finished and not entry.altered and identity not in slow:
                measured.append(_measure(entry, group, x, limit, checkpoint))
        counted, twins = replicates([one for one in measured if one is not None])
        variant = _fold(by_name[identity], entries, counted, checkpoint)
        words = tuple((word, settings[identity][key]) for key, word in by_names(by).items())
        found.append(replace(variant, twins=twins, settings=settings[identity], by=words, limit=limit))
    if x is not None and limit is not None:
        runs = {variant.name: variant.entries for variant in found}
        for place, identity in enumerate(folded):
            if identity in slow:
                sentence = left_out_sentence(group, runs, by_name[identity], ends[identity], limit, x)
                found[place] = replace(found[place], left_out=sentence)
    return ordered(found, [variant.mean for variant in found], descending=group.mode == "max")


def _folded(group: Group, by: Sequence[str], fold_parents: bool) -> tuple[dict[str, list[Entry]], dict[str, Settings]]:
    """The runs of each variant, and its settings, by what identifies it."""
    own = {}
    alike: dict[str, list[Entry]] = {}
    for entry in group.entries:
        settings_of = without_origin(deciding(entry, by)) if fold_parents else deciding(entry, by)
        own[id(entry)] = settings_of | {key: by_value(entry, key) for key in by}
        alike.setdefault(_identity(own[id(entry)]), []).append(entry)
    more = told_apart(group, alike.values())
    folded: dict[str, list[Entry]] = {}
    settings: dict[str, Settings] = {}
    for entry in group.entries:
        found = own[id(entry)] | more[id(entry)]
        identity = _identity(found)
        folded.setdefault(identity, []).append(entry)
        settings.setdefault(identity, found)
    return folded, settings


def _identity(settings: Settings) -> str:
    """Return settings as one text, independent of their order in the file."""
    return repr(sorted((key, repr(value)) for key, value in settings.items()))


def _limit(ends: Mapping[str, Reach], slow: Collection[str]) -> float | None:
    """Return the largest x that all runs that count reached; None if no run has finished."""
    kept = []
    for identity, reach in ends.items():
        if identity not in slow and reach.end is not None:
            kept.append(reach.end)
    return min(kept, default=None)


def _fold(name: str, entries: list[Entry], measurements: list[Measurement], checkpoint: Checkpoint) -> Variant:
    """The variant of these runs, with the mean costs of those that were measured."""
    if not measurements:
        return Variant(name, tuple(entries), (), (), {})
    counted, values, costs, validations = zip(*measurements, strict=True)
    means: dict[Axis, float] = {}
    for axis in AXES:
        known = [one[axis] for one in costs if axis in one]
        if len(known) == len(costs):  # else it would be a mean over other runs than the value's
            means[axis] = statistics.fmean(known)
    chosen_from = statistics.fmean(validations) if checkpoint == "best" else None
    return Variant(name, tuple(entries), counted, values, means, chosen_from)


def _measure(
    entry: Entry, group: Group, x: Axis | None, limit: float | None, checkpoint: Checkpoint
) -> Measurement | None:
    """A run's value and what it had cost there; None where it has none."""
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
