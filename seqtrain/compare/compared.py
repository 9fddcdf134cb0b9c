"""A comparison for notebooks: runs, variants and curves as DataFrames, the verdict as sentences, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.compare import records, table
from seqtrain.compare.entries import AXES, Axis, Checkpoint, count_runs, count_statuses, read
from seqtrain.compare.filters import chosen, hidden_by
from seqtrain.compare.page import curves
from seqtrain.compare.verdict import Conclusion, all_entries, conclusions
from seqtrain.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

CHECKPOINTS: tuple[Checkpoint, ...] = ("final", "best")
MAX_SENTENCES = 3  # that a notebook shows by itself


@dataclass(frozen=True, eq=False)
class Compared:
    """A comparison of runs at the time of the call; its `str` is the output of `seqtrain compare`."""

    paths: tuple[Path, ...]  # the requested paths
    groups: list[Conclusion] = field(repr=False)  # runs of one group are comparable
    missing: list[str] = field(repr=False)  # a line for each trial that left no run
    left_out: list[str] = field(repr=False)  # a line for each damaged run
    x: Axis | None = None
    checkpoint: Checkpoint = "final"

    @cached_property
    def runs(self) -> DataFrame:
        """One row per run, finished or not: its identity, differing settings, validation metrics and costs.

        `value` is the run's contribution to the mean of its variant; it is missing if the run does not count. For a
        run that has not finished, each metric is its last recorded value.
        """
        return records.run_frame(self.groups)

    @cached_property
    def variants(self) -> DataFrame:
        """One row per variant, the best of each group first: mean, sd and 95 % interval over seeds, and mean costs.

        Only finished runs count: `seeds` is their number, `runs` the number of all runs.
        """
        return records.variant_frame(self.groups)

    def history(self, metric: str) -> DataFrame:
        """Return the recorded points of a metric, one per row, for finished and unfinished runs.

        Args:
            metric: its name in the records, such as "validation/loss", "train/loss" or "lr".

        Returns:
            group, run, variant, seed, step, tokens, seconds, value; points with a non-finite value are left out.
            Runs of two groups are not comparable, even if their variants share a name: do not average over them.

        Raises:
            UserError: no run recorded the metric.
        """
        return records.history_frame(self.groups, metric)

    @property
    def verdict(self) -> list[str]:
        """Conclusions in sentences.

        With several groups, each sentence names its group, and why the group is separate.
        """
        sentences = []
        for number, conclusion in enumerate(self.groups, 1):
            prefix = ""
            if len(self.groups) > 1:  # read alone, a sentence must not seem to be about all runs
                prefix = f"group {number}: "
            if conclusion.group.reason:
                why = [*conclusion.group.reason, *filter(None, [conclusion.group.remedy])]
                sentences.append(f"{prefix}not compared with group 1: {'; '.join(why)}")
            for sentence in conclusion.sentences:
                sentences.append(prefix + sentence)
        return sentences

    @property
    def remarks(self) -> list[str]:
        """Remarks on the verdict: on groups, variants, runs that do not count, and trials without a run."""
        lines = []
        for conclusion in self.groups:
            lines += [*conclusion.group.notes, *conclusion.caveats, *conclusion.remarks]
        return [*lines, *self.missing, *self.left_out]

    def plot(self, metric: str | None = None, x: Axis | None = None, *, group: int | None = None) -> Figure:
        """Draw learning curves.

        A variant with several finished or running seeds is drawn as the line of their mean, with a band from the lowest
        to the highest, up to the end of the shortest one. Pale lines are runs.

        Args:
            metric: its name in the records, such as "validation/loss"; None: the metric of the comparison.
            x: "steps", "tokens", "seconds" or "flops"; None: that of the comparison, or steps.
            group: number of the group to draw, from 1; None: the largest. Different groups are not comparable.

        Returns:
            A plotly figure.

        Raises:
            UserError: no run of the group recorded the metric, or there is no such axis or group.
        """
        axis = x or self.x or "steps"
        _check_choice("x", axis, AXES)
        if group is not None and not 1 <= group <= len(self.groups):
            raise UserError(f"group={group}: there are {len(self.groups)}, numbered from 1")
        return curves.figure(self.groups, metric=metric, x=axis, group=group)

    def __str__(self) -> str:
        lines = [table.text(self.groups, missing=self.missing, x=self.x), *self.left_out]
        return "\n".join(lines)

    def __repr__(self) -> str:
        more = len(self.verdict) - 1
        lines = [f"Compared({self._about()})", self.verdict[0]]
        if more:
            lines.append(f"and {more} more in .verdict; print() shows the tables")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the notebook view: the table of variants, the first sentences, and the number of further ones."""
        # A notebook shows it by itself, so it stays short.
        items = self.verdict[:MAX_SENTENCES]
        for name, lines in {"verdict": self.verdict[MAX_SENTENCES:], "remarks": self.remarks}.items():
            if lines:
                items.append(f"and {len(lines)} more in .{name}")
        found = self.variants.to_html(index=False, na_rep="", float_format="{:.5g}".format, border=0)
        shown = "".join(f"<li>{escape(item)}</li>" for item in items)
        return f"<p>{escape(self._about())}</p>{found}<ul>{shown}</ul>"

    def _about(self) -> str:
        entries = all_entries(self.groups)
        count = sum(len(conclusion.variants) for conclusion in self.groups)
        words = [f"{count_runs(entries)}: {count_statuses(entries)}", f"{count} variant{'s' * (count != 1)}"]
        if len(self.groups) > 1:
            words.append(f"{len(self.groups)} groups that are not comparable")
        # Groups of several tasks have several units.
        units = dict.fromkeys(conclusion.group.unit for conclusion in self.groups)
        return "; ".join([*words, f"{', '.join(units)} of validation"])


def compare(
    paths: Sequence[str | Path],
    *,
    metric: str | None = None,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    across: Sequence[str] = (),
    by: Sequence[str] = (),
    where: Sequence[str] = (),
) -> Compared:
    """Read and compare runs; see `seqtrain.compare`, which has the same options.

    Raises:
        UserError: a path contains no run, no run has the metric, or an option has no such value or key.
    """
    if not paths:
        raise UserError('compare: name a run, a sweep or a folder of them, such as compare("outputs")')
    if x is not None:
        _check_choice("x", x, AXES)
    _check_choice("checkpoint", checkpoint, CHECKPOINTS)
    left_out: list[str] = []  # one damaged run must not prevent the comparison of the others
    known = read(paths, left_out)
    entries = chosen(known, where)
    hidden = hidden_by(known, entries)
    found = conclusions(entries, metric=metric, x=x, checkpoint=checkpoint, across=across, by=by, hidden=hidden)
    return Compared(tuple(map(Path, paths)), found, table.not_run(paths), left_out, x, checkpoint)


def _check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise UserError(f"{name}={value!r}: expected {' or '.join(known)}")
