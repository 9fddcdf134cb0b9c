"""Groups of comparable runs: runs whose results are not comparable are put into different groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seqtrain.compare.conditions import Conditions, check_across, conditions, in_words, not_meant, remedy, split_keys
from seqtrain.compare.entries import Entry, Mode
from seqtrain.errors import UserError, did_you_mean
from seqtrain.runs import measures


@dataclass
class Group:
    """Runs that are comparable in one metric."""

    metric: str
    mode: Mode
    entries: list[Entry] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)  # how it differs from the first group
    notes: list[str] = field(default_factory=list)  # on how its runs were measured
    conditions: Conditions = field(default_factory=lambda: Conditions({}))  # of its first run
    remedy: str = ""  # options that make it comparable with the first group; empty: none do
    measured: dict[int, Conditions] = field(default_factory=dict)  # of each run, by the id of its entry
    across: str = ""  # limits of a verdict on runs that `--across` has joined

    @property
    def refusal(self) -> str | None:
        """Reason why nothing is concluded: the weights were trained on much of the measured text; None otherwise."""
        if not self.conditions.values.get("leak"):
            return None
        first = self.entries[0]
        others = f" and {len(self.entries) - 1} more" if len(self.entries) > 1 else ""
        return f"not compared: {first.leak} ({first.name}{others}): so much may be learnt by heart"

    @property
    def unit(self) -> str:
        """Unit of the group's metric."""
        return self.entries[0].unit(self.metric)

    @property
    def split(self) -> str:
        """The split whose results are compared."""
        return self.entries[0].split


def groups(entries: Sequence[Entry], *, metric: str | None = None, across: Sequence[str] = ()) -> list[Group]:
    """Sort the runs into groups that share the conditions of their measurement.

    Args:
        entries: the runs.
        metric: the metric to compare; None: bits per byte for language models, otherwise the task's monitor.
        across: names of conditions in which runs of a group may differ; each may contain several, separated by commas.

    Raises:
        UserError: no run has the metric, or a key of `across` is unknown or separates no runs.
    """
    if metric is not None and all(entry.metric(metric) is None for entry in entries):
        names = set().union(*(entry.metrics for entry in entries))
        raise UserError(f"--metric {metric}: no run has it{did_you_mean(metric, names)}")
    keys = split_keys(across)
    measured = {id(entry): conditions(entry, metric or measures.compared_by(entry.summary)) for entry in entries}
    check_across(keys, list(measured.values()))
    found = _sorted_into_groups(entries, measured, metric, keys)
    for group in found:
        group.measured = {id(entry): measured[id(entry)] for entry in group.entries}
        group.across = not_meant(keys, list(group.measured.values()))
    return found


def _sorted_into_groups(
    entries: Sequence[Entry], measured: Mapping[int, Conditions], metric: str | None, keys: Sequence[str]
) -> list[Group]:
    """Return the groups; the runs of each keep their order.

    Args:
        entries: the runs.
        measured: the conditions of each entry, by its id.
        metric: as in `groups`.
        keys: of `--across`.
    """
    found: list[Group] = []
    for entry in sorted(entries, key=lambda entry: _rank(measured[id(entry)])):
        own = measured[id(entry)].across(keys)
        group = next((each for each in found if not each.conditions.differing(own)), None)
        if group is None:
            chosen = metric or measures.compared_by(entry.summary)
            group = Group(chosen, entry.mode(chosen), conditions=own)
            if found:
                group.reason = _reasons(found[0], own, entry)
                group.remedy = remedy(found[0].conditions.differing(own), keys)
            found.append(group)
        group.entries.append(entry)
    order = {id(entry): place for place, entry in enumerate(entries)}
    for group in found:
        group.entries.sort(key=lambda entry: order[id(entry)])
    return found


def _reasons(group: Group, own: Conditions, entry: Entry) -> list[str]:
    """Return the conditions in which a run, whose conditions are `own`, differs from a group: a sentence each."""
    names = group.conditions.differing(own)
    if "task" in names:  # then all else differs, too
        names = ["task"]
    return [in_words(name, group.metric, group.entries[0], entry) for name in names]


def _rank(own: Conditions) -> tuple[bool, bool, bool]:
    """Return the sort key of a run: runs from which nothing is concluded come last."""
    # Runs with all conditions known come first: an unknown condition matches every value, so a group that begins with
    # such a run could join runs that differ from each other. The same holds for a run of an older version that does
    # not record that its metric counts whole answers.
    return bool(own.values["leak"]), not own.is_complete, not own.of_answers
