"""Groups of comparable runs: runs whose numbers mean different things are put into different groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seqtrain.compare.across import check_across, not_meant, remedy, split_keys
from seqtrain.compare.conditions import Conditions, conditions
from seqtrain.compare.entries import Entry, Mode
from seqtrain.compare.reasons import in_words, reading_words, unsaid
from seqtrain.errors import UserError, did_you_mean
from seqtrain.runs import measures


@dataclass
class Group:
    """Runs that may be compared in one metric."""

    metric: str
    mode: Mode
    entries: list[Entry] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)  # in what it differs from the first group
    notes: list[str] = field(default_factory=list)  # what its own runs do not share
    conditions: Conditions = field(default_factory=lambda: Conditions({}))  # of its first run
    remedy: str = ""  # what makes it comparable with the first group, where anything does
    measured: dict[int, Conditions] = field(default_factory=dict)  # of each run, by the id of its entry
    across: str = ""  # what a verdict on its runs does not mean, where `--across` has put them together

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
        """The split whose figures are compared."""
        return self.entries[0].split


def groups(entries: Sequence[Entry], *, metric: str | None = None, across: Sequence[str] = ()) -> list[Group]:
    """The entries, sorted into groups that share the conditions of their measurement.

    Args:
        metric: what they are compared in; None: bits per byte of language models, else what their task monitors.
        across: names of conditions, or of entries of one, in which runs of a group may differ all the same; each may
            hold several, separated by commas.

    Raises:
        UserError: where no run has the metric, or a key of `across` is unknown or keeps no runs apart.
    """
    if metric is not None and not any(has(entry, metric) for entry in entries):
        raise UserError(f"--metric {metric}: no run has it{did_you_mean(metric, _metric_names(entries))}")
    keys = split_keys(across)
    measured = {}
    for entry in entries:
        measured[id(entry)] = conditions(entry, metric or default_metric(entry))
    if keys:
        check_across(keys, list(measured.values()))
    found = _sorted_into_groups(entries, measured, metric, keys)
    for group in found:
        for entry in group.entries:
            group.measured[id(entry)] = measured[id(entry)]
        group.notes += _notes(group)
        group.across = not_meant(keys, list(group.measured.values()))
    return found


def _sorted_into_groups(
    entries: Sequence[Entry], measured: Mapping[int, Conditions], metric: str | None, keys: Sequence[str]
) -> list[Group]:
    """The groups; within each the runs keep their order.

    Args:
        measured: the conditions of each entry, by its id.
    """
    found: list[Group] = []
    for entry in sorted(entries, key=lambda entry: _rank(measured[id(entry)])):
        own = measured[id(entry)].across(keys)
        group = _group_with(found, own)
        if group is None:
            chosen = metric or default_metric(entry)
            group = Group(chosen, entry.mode(chosen), conditions=own)
            if found:
                group.reason = differences(found[0], own, entry)
                group.remedy = remedy(found[0].conditions.differing(own), keys)
            found.append(group)
        group.entries.append(entry)
    order = {id(entry): place for place, entry in enumerate(entries)}
    for group in found:
        group.entries.sort(key=lambda entry: order[id(entry)])
    return found


def differences(group: Group, own: Conditions, entry: Entry) -> list[str]:
    """Return the conditions in which a run, whose conditions are `own`, differs from a group: a short sentence each."""
    beside = group.entries[0]
    if entry.task != beside.task:  # then all else differs too, and says nothing more
        return [in_words("task", beside.task, entry.task, beside, entry)]
    sentences = []
    for name in group.conditions.differing(own):
        sentence = in_words(name, group.conditions.values[name], own.values[name], beside, entry)
        sentences.append(sentence + unsaid(name, group.metric, (beside, entry)))
    return sentences


def default_metric(entry: Entry) -> str:
    """The metric in which runs like this one are compared where none is asked for."""
    return measures.compared_by(entry.summary)


def has(entry: Entry, metric: str) -> bool:
    """Return True if the run has this metric of validation."""
    return entry.metric(metric) is not None


def _metric_names(entries: Iterable[Entry]) -> set[str]:
    names: set[str] = set()
    return names.union(*(entry.metrics for entry in entries))


def _rank(own: Conditions) -> tuple[bool, bool, bool]:
    """Return the sort key of a run: runs from which nothing is concluded come last."""
    # Complete ones first: a run with unknown conditions would open a group in which runs meet that are unlike. So
    # would, in a metric of whole answers, the run of an older version that does not say that it is one.
    return bool(own.values["leak"]), not own.is_complete, not own.of_answers


def _group_with(found: Iterable[Group], own: Conditions) -> Group | None:
    """The first group whose conditions a run with these does not contradict."""
    for group in found:
        if not group.conditions.differing(own):
            return group
    return None


def _notes(group: Group) -> list[str]:
    return _reading_notes(group) + _leak_notes(group)


def _reading_notes(group: Group) -> list[str]:
    """Return notes on differences in how text is read within a group, and why its runs are compared nevertheless."""
    first = group.entries[0]
    if first.fold is not None:  # each has rows and a vocabulary of its own, and is held against its like
        return []
    tokenizers = len({str(entry.summary.hashes.get("tokenizer")) for entry in group.entries} - {"None"})
    if not group.conditions.of_answers:
        # Where --across has folded tokenizers, the verdict says what that means.
        if tokenizers > 1 and measures.tokenizer_free(first.summary, group.metric):
            return [f"{tokenizers} tokenizers: held against each other in {group.unit} only"]
        return []
    words = [f"{tokenizers} tokenizers"] if tokenizers > 1 else []
    words += reading_words(group.entries, group.conditions.answered_by)
    if not words:
        return []
    return [f"{group.unit} counts whole answers to the same examples, so runs of {', '.join(words)} are compared"]


def _leak_notes(group: Group) -> list[str]:
    """Return notes on validation text that training may have read; runs with the same note share it."""
    runs: dict[str, list[str]] = {}
    for entry in group.entries:
        for note in entry.leak_notes:
            runs.setdefault(note, []).append(entry.name)
    notes = []
    for note, names in runs.items():
        if len(names) == len(group.entries):
            whose = "all runs"
        else:
            whose = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        notes.append(f"{note} ({whose})")
    return notes
