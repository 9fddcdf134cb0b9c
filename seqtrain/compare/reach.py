"""The reach of variants on the axis of `--x`, and which are left out so that the others can be compared.

The rule uses the axis alone, never what was measured. A variant is left out because of its reach, as a whole (never
one of its seeds), and by name; no sentence of the verdict is about it.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqtrain.compare.entries import Axis, Entry
from seqtrain.compare.guard import Group
from seqtrain.errors import UserError, first_few

COSTS: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "seconds": "seconds", "flops": "FLOPs"}
MOST_NAMED = 4  # variants in one sentence
MUCH_MORE = 2.0  # times as far as a variant came that is left out must each of the others have come


@dataclass(frozen=True)
class Reach:
    """The reach of a variant's runs on the axis."""

    end: float | None = None  # the axis at the last validation of that run which came least far
    run: str = ""  # its name
    is_of_all: bool = True  # whether none of its runs came twice as far

    def words(self, limit: float, axis: str) -> str:
        """`reached only 120 of 600 seconds`."""
        run = "" if self.is_of_all else f" ({self.run})"
        return f"reached only {_written(self.end)} of {_written(limit)} {axis}{run}"


def _written(amount: float | None) -> str:
    """Return an amount without a power of ten: 1,228,800, or 0.25 for a small one."""
    amount = amount or 0.0
    return f"{amount:,.0f}" if amount >= 1e5 else f"{amount:,.6g}"


def reaches(group: Group, folded: Mapping[str, Sequence[Entry]], x: Axis) -> dict[str, Reach]:
    """Return the reach of each variant: that of its slowest finished run.

    Args:
        group: has the metric.
        folded: the runs of each variant, by what identifies it.
        x: the axis.

    Raises:
        UserError: a finished run has no validation against this axis.
    """
    found = {}
    for identity, entries in folded.items():
        ends = {}
        for entry in entries:
            if entry.finished:
                ends[entry.name] = _end(entry, group, x)
        if not ends:
            found[identity] = Reach()
            continue
        slowest = min(ends, key=ends.__getitem__)
        end = ends[slowest]
        found[identity] = Reach(end, slowest, is_of_all=max(ends.values()) < MUCH_MORE * end)
    return found


def too_slow(found: Mapping[str, Reach], kept: str | None = None) -> set[str]:
    """Return the variants to leave out at equal x: fewer than half of all, if each other one came twice as far.

    Args:
        found: as `reaches` gives it.
        kept: a variant that is not left out however slow it is, nor any that came as far: it was asked for by name.
    """
    ranked = []
    for identity, reach in found.items():
        if reach.end is not None:
            ranked.append((reach.end, identity))
    ranked.sort()
    most = len(ranked)
    if kept is not None and kept in found and found[kept].end is not None:
        most = ranked.index((found[kept].end, kept))
    slow: set[str] = set()
    for count in range(1, min((len(ranked) - 1) // 2, most) + 1):
        # The last such gap: of three speeds the slow and the slowest are both left out, if they are few.
        if ranked[count][0] > MUCH_MORE * ranked[count - 1][0]:
            slow = {identity for _, identity in ranked[:count]}
    return slow


def left_out_sentence(
    group: Group, runs: Mapping[str, Sequence[Entry]], name: str, reach: Reach, limit: float, x: Axis
) -> str:
    """Return the sentence on a variant that was left out: what that leaves open, and how it compared when it ended.

    The sentence has its last number and what the others had there, so that leaving out a slow variant cannot make it
    look worse than it is.

    Args:
        group: has the metric.
        runs: the runs of each variant, by its name.
        name: the variant.
        reach: how far it came.
        limit: where the others are compared.
        x: the axis.
    """
    end = reach.end or 0.0
    beside = [name, *(other for other in runs if other != name)]
    values = []
    for other in beside:
        mean = _mean_at(group, runs[other], x, end)
        if mean is not None:
            values.append(f"{other} {mean:.4g}")
    there = first_few(values, MOST_NAMED + 1)
    return (
        f"left out: {name} {reach.words(limit, COSTS[x])}: whether it is better or worse than the others is not "
        f"concluded; after {end:,.6g} {COSTS[x]}: {there} {group.unit}; --against '{name}' compares all of them there"
    )


def _mean_at(group: Group, entries: Sequence[Entry], x: Axis, end: float) -> float | None:
    """Return the mean over runs of the last validation up to `end`; None if a run has none so early."""
    values = []
    for entry in entries:
        if not entry.finished:
            continue
        xs, ys = entry.curve(f"validation/{group.metric}", x)
        until = bisect.bisect_right(xs, end)
        # A mean of fewer runs would be of the fast ones alone.
        if until == 0:
            return None
        values.append(ys[until - 1])
    return statistics.fmean(values) if values else None


def _end(entry: Entry, group: Group, x: Axis) -> float:
    """Return the axis at the last validation of a run."""
    xs = entry.curve(f"validation/{group.metric}", x)[0]
    if not xs:
        raise UserError(f"--x {x}: {entry.name} has no {group.metric} of validation against {x}; leave it out")
    return xs[-1]
