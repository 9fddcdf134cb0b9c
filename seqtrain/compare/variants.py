"""The variants of a comparison: runs that differ in nothing but their seed, folded to mean, spread and interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqtrain.compare.entries import AXES, Axis, Entry, Which, differing, is_path, short_names
from seqtrain.compare.guard import Group
from seqtrain.errors import UserError

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Variant:
    """Runs that differ in nothing but their seed; `values` holds one number of each seed that finished."""

    name: str  # what differs from other variants, such as "lstm" or "lstm dim=64"
    entries: tuple[Entry, ...]  # all its runs, finished or not
    counted: tuple[Entry, ...]  # those whose values count: finished, each seed once
    values: tuple[float, ...]
    costs: dict[Axis, float]  # means over what counts, at the weights that were measured
    validations: float | None = None  # of which each value is the best, on the mean; None where it is the last

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """The standard deviation over seeds; None of fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, by Student's t; None of fewer than two seeds."""
        if self.mean is None or self.sd is None:
            return None
        from scipy.special import stdtrit

        half = float(stdtrit(len(self.values) - 1, (1 + CONFIDENCE) / 2)) * self.sd / math.sqrt(len(self.values))
        return self.mean - half, self.mean + half


def variants(group: Group, *, x: Axis | None = None, which: Which = "final") -> list[Variant]:
    """The runs of a group folded over seeds, the best first and those without a value last.

    `x`: each run's value is that of its last validation at or before the largest x that all of them reached; without
    it, the final one. `which="best"`: the best validation up to there. UserError where a run has none so early.
    """
    folded: dict[str, list[Entry]] = {}
    for entry in group.entries:
        folded.setdefault(_identity(entry), []).append(entry)
    names = distinct([entries[0] for entries in folded.values()])
    limit = None if x is None else common(group, x)
    made = [_arm(name, own, group, x, limit, which) for name, own in zip(names, folded.values(), strict=True)]
    sign = 1 if group.mode == "min" else -1
    return sorted(made, key=lambda variant: math.inf if variant.mean is None else sign * variant.mean)


def common(group: Group, x: Axis) -> float | None:
    """The largest x at which, or after which, every finished run has a validation; None where none has finished."""
    ends = []
    for entry in filter(lambda entry: entry.finished, group.entries):
        places = entry.curve(f"validation/{group.metric}", x)[0]
        if not places:
            raise UserError(f"--x {x}: {entry.name} has no {group.metric} of validation against {x}; leave it out")
        ends.append(places[-1])
    return min(ends, default=None)


def distinct(entries: Sequence[Entry]) -> list[str]:
    """A short name for each: the model, what was swept, and of the other settings as many as tell them apart."""
    keys = [key for key in differing(entries) if key not in ("model", "seed")]
    swept = {word.partition("=")[0] for entry in entries if entry.sweep for word in entry.label.split()}
    chosen: list[str] = ["model", *(key for key in keys if key in swept)]
    for key in keys:
        if _told_apart(entries, [*chosen, key]) > _told_apart(entries, chosen):
            chosen.append(key)
    short = short_names(chosen)
    named = [[key for key in chosen[1:] if key in entry.settings] for entry in entries]
    names = [
        " ".join([entry.model, *(f"{short[key]}={shown(entry.settings[key])}" for key in keys)])
        for entry, keys in zip(entries, named, strict=True)
    ]
    return [
        name if names.count(name) == 1 else f"{name} {entry.name}" for name, entry in zip(names, entries, strict=True)
    ]


def shown(value: Any) -> str:
    """A setting in a name: of a number, as many digits as a person reads."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _told_apart(entries: Sequence[Entry], keys: Sequence[str]) -> int:
    return len({tuple(repr(entry.settings.get(key)) for key in keys) for entry in entries})


def _identity(entry: Entry) -> str:
    """What an variant's runs share: all settings but the seed, and where the data lies, whose hash the guard
    compares."""
    return repr(sorted((key, repr(v)) for key, v in entry.settings.items() if key != "seed" and not is_path(key)))


def _arm(name: str, entries: list[Entry], group: Group, x: Axis | None, limit: float | None, which: Which) -> Variant:
    measured: dict[str, tuple[Entry, float, dict[Axis, float], int]] = {}
    for entry in filter(lambda entry: entry.finished, entries):
        found = _measured(entry, group, x, limit, which)
        if found is not None:  # a seed that was run twice says nothing more
            measured.setdefault(repr(entry.seed), (entry, *found))
    counted, values, costs, seen = zip(*measured.values(), strict=True) if measured else ((), (), (), ())
    means: dict[Axis, float] = {}
    for axis in AXES:
        if costs and all(axis in one for one in costs):
            means[axis] = statistics.fmean(one[axis] for one in costs)
    validations = statistics.fmean(seen) if seen and which == "best" else None
    return Variant(name, tuple(entries), counted, values, means, validations)


def _measured(
    entry: Entry, group: Group, x: Axis | None, limit: float | None, which: Which
) -> tuple[float, dict[Axis, float], int] | None:
    """A run's value, what it had cost there, and the number of validations that it was taken from."""
    if limit is None and which == "final":
        value = entry.metric(group.metric)
        costs: dict[Axis, float] = {axis: cost for axis in AXES if (cost := entry.cost(axis)) is not None}
        return None if value is None else (value, costs, 1)
    places, values = entry.curve(f"validation/{group.metric}", x or "steps")
    upto = [k for k, place in enumerate(places) if limit is None or place <= limit]
    if not upto:
        if limit is None:
            return None
        raise UserError(
            f"--x {x}: {entry.name} has no validation before {x}={limit:,.6g}, where another run ends; "
            "set a smaller trainer.validate_every, or leave --x out"
        )
    best = min(upto, key=lambda k: values[k] if group.mode == "min" else -values[k])
    chosen = upto[-1] if which == "final" else best
    there: dict[Axis, float] = {}
    for axis in AXES:
        if curve := entry.curve(f"validation/{group.metric}", axis)[0]:
            there[axis] = curve[chosen]
    return values[chosen], there, len(upto)
