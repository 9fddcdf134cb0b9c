"""What may be compared with what: runs whose numbers mean different things stand in groups of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqtrain.compare.entries import Entry, Mode, number
from seqtrain.compare.reasons import in_words
from seqtrain.errors import UserError, did_you_mean
from seqtrain.runs import leaks, measures

ACROSS = ("train",)  # conditions that may be left out: over other training text the verdict is about text and model
# Stands for every tokenizer without <unk>: language models of all such tokenizers meet in bits per byte.
NOTHING_HIDDEN = "one that hides nothing behind <unk>"
UNKNOWN = object()  # what a run that has not come so far cannot say of itself: it agrees with every value


@dataclass
class Group:
    """Runs that may be compared in one metric."""

    metric: str
    mode: Mode
    entries: list[Entry] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)  # in what it differs from the first group
    notes: list[str] = field(default_factory=list)  # what its own runs do not share
    conditions: dict[str, Any] = field(default_factory=dict)  # of its first run

    @property
    def refusal(self) -> str | None:
        """Why nothing is concluded from its numbers: the weights were trained on much of validation."""
        if not self.conditions.get("leak"):
            return None
        first = self.entries[0]
        others = f" and {len(self.entries) - 1} more" if len(self.entries) > 1 else ""
        return f"not compared: {leaks.worst(first.summary)} ({first.name}{others}): so much may be learnt by heart"

    @property
    def unit(self) -> str:
        """What stands behind a number of its metric."""
        return self.entries[0].unit(self.metric)

    @property
    def split(self) -> str:
        """The split whose figures are compared."""
        return self.entries[0].split


def groups(entries: Sequence[Entry], *, metric: str | None = None, across: Sequence[str] = ()) -> list[Group]:
    """The entries, sorted into groups that share the conditions of their measurement.

    Args:
        metric: what they are compared in; None: bits per byte of language models, else what their task monitors.
        across: conditions that may differ within a group (`train`).

    Raises:
        UserError: where no run has the metric.
    """
    if metric is not None and not any(has(entry, metric) for entry in entries):
        raise UserError(f"--metric {metric}: no run has it{did_you_mean(metric, _metric_names(entries))}")
    found: list[Group] = []
    for entry in sorted(entries, key=lambda entry: _rank(conditions(entry, metric))):
        own = conditions(entry, metric)
        for name in across:
            own.pop(name, None)
        group = _group_with(found, own)
        if group is None:
            chosen = metric or default_metric(entry)
            reason = differences(found[0], own, entry) if found else []
            group = Group(chosen, entry.mode(chosen), reason=reason, conditions=own)
            found.append(group)
        group.entries.append(entry)
    order = {id(entry): place for place, entry in enumerate(entries)}
    for group in found:
        group.entries.sort(key=lambda entry: order[id(entry)])
        group.notes += _notes(group)
    return found


def conditions(entry: Entry, metric: str | None = None) -> dict[str, Any]:
    """What two runs must share for their numbers to mean the same; UNKNOWN for what this one cannot say yet."""
    hashes = entry.summary.hashes
    return {
        "task": entry.task,
        **_text(entry),
        "train": hashes.get("train", UNKNOWN),
        "context": _known(entry.summary.context),
        "tokenizer": _tokenizer(entry, metric),
        "signatures": _known(entry.summary.signatures),
        "decoding": _decoding(entry),
        "leak": leaks.worst(entry.summary) is not None,
    }


def _text(entry: Entry) -> dict[str, Any]:
    """What says on which text the figures were measured that are compared."""
    if entry.evaluation is None:
        validation = entry.summary.hashes.get("validation", UNKNOWN)
        return {"validation": validation, "split": entry.settings.get("data.split_by")}
    return {"test": entry.evaluation.hash, "lanes": entry.evaluation.options.get("eval_lanes")}


def differences(group: Group, own: dict[str, Any], entry: Entry) -> list[str]:
    """In which conditions a run, with conditions of its `own`, is unlike those of a group: a short sentence each."""
    beside = group.entries[0]
    if entry.task != beside.task:  # then all else differs too, and says nothing more
        return [in_words("task", beside.task, entry.task, beside, entry)]
    sentences = []
    for name in _differing(group.conditions, own):
        sentences.append(in_words(name, group.conditions[name], own[name], beside, entry))
    return sentences


def default_metric(entry: Entry) -> str:
    """The metric in which runs like this one are compared where none is asked for."""
    return measures.compared_by(entry.summary)


def across_tokenizers(entry: Entry, metric: str | None) -> bool:
    """Whether runs like this one are compared in what does not depend on their tokenizers."""
    return measures.tokenizer_free(entry.summary, metric or default_metric(entry))


def unknown_tokens(entry: Entry) -> float | None:
    """Tokens of validation that hide their spelling behind <unk>, where bits per byte are of less text.

    None where the run has not come so far as to count them.
    """
    unknown = entry.summary.unknown
    return None if unknown is None else number(unknown.get("validation", 0))


def has(entry: Entry, metric: str) -> bool:
    """Whether the run has this metric of validation."""
    return entry.metric(metric) is not None


def _metric_names(entries: Iterable[Entry]) -> set[str]:
    names: set[str] = set()
    return names.union(*(entry.metrics for entry in entries))


def _rank(own: dict[str, Any]) -> tuple[bool, bool]:
    """By what a run comes earlier or later into groups: those that nothing is concluded from come last."""
    # Complete ones first: a run with unknown conditions would open a group in which runs meet that are unlike.
    return own["leak"], UNKNOWN in own.values()


def _group_with(found: Iterable[Group], own: dict[str, Any]) -> Group | None:
    """The first group whose conditions a run with these does not contradict."""
    for group in found:
        if not _differing(group.conditions, own):
            return group
    return None


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of the conditions that both know and that are not equal."""
    names = []
    for name, value in other.items():
        if UNKNOWN not in (value, one[name]) and value != one[name]:
            names.append(name)
    return names


def _known(value: Any) -> Any:
    return UNKNOWN if value is None else value


def _tokenizer(entry: Entry, metric: str | None) -> Any:
    """The hashes of all that turns text into ids and labels, or what stands for tokenizers that may be compared."""
    hashes = entry.summary.hashes
    preprocessor = {name: value for name, value in hashes.items() if name not in ("train", "validation", "test")}
    if entry.summary.measures is None:  # it has not come so far as to say in what it may be compared
        return UNKNOWN
    if not across_tokenizers(entry, metric):
        return preprocessor or UNKNOWN
    unknown = unknown_tokens(entry)
    if unknown is None:
        return UNKNOWN
    # A tokenizer that hides text is like itself alone, and only where it hides as much.
    return preprocessor | {"unknown_tokens": int(unknown)} if unknown else NOTHING_HIDDEN


def _decoding(entry: Entry) -> Any:
    """The options of the task that change what is measured: those that change only training may differ."""
    trained_by = entry.summary.trained_by
    if trained_by is None:
        return UNKNOWN
    options = {}
    for key, value in entry.settings.items():
        if key.startswith("task.") and key.removeprefix("task.") not in trained_by:
            options[key] = value
    return options


def _notes(group: Group) -> list[str]:
    notes = []
    tokenizers, texts = _count_hashes(group, "tokenizer"), _count_hashes(group, "train")
    if tokenizers > 1:
        notes.append(f"{tokenizers} tokenizers: held against each other in bits per byte only")
    if texts > 1:
        notes.append(f"{texts} training texts, as asked for: a difference may be the text's")
    return notes + _leak_notes(group)


def _leak_notes(group: Group) -> list[str]:
    """What is said of validation text that training may have read, once for all runs of which it is said."""
    runs: dict[str, list[str]] = {}
    for entry in group.entries:
        for note in leaks.notes(entry.summary):
            runs.setdefault(note, []).append(entry.name)
    notes = []
    for note, names in runs.items():
        if len(names) == len(group.entries):
            whose = "all runs"
        else:
            whose = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        notes.append(f"{note} ({whose})")
    return notes


def _count_hashes(group: Group, name: str) -> int:
    """How many texts, or tokenizers, its runs were trained with, as far as they say it."""
    found = {str(entry.summary.hashes.get(name)) for entry in group.entries}
    return len(found - {"None"})
