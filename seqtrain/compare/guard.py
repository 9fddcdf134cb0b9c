"""What may be compared with what: runs whose numbers mean different things stand in groups of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from seqtrain.compare.entries import Entry, number
from seqtrain.errors import UserError, did_you_mean
from seqtrain.runs import measures

ACROSS = ("train",)
"""Unlikeness that one may choose to look past: of runs on other training text the verdict is about text and model."""

NOTHING_HIDDEN = "one that hides nothing behind <unk>"
"""Language models of all such tokenizers meet in bits per byte."""

UNKNOWN = object()
"""What a run that has not come so far cannot say of itself: it is like any other's."""


@dataclass
class Group:
    """Runs that may be held against each other in one metric."""

    metric: str
    mode: Literal["min", "max"]
    entries: list[Entry] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)  # in what it differs from the first group
    notes: list[str] = field(default_factory=list)  # what its own runs do not share

    @property
    def unit(self) -> str:
        """What stands behind a number of its metric."""
        return self.entries[0].unit(self.metric)


def groups(entries: Sequence[Entry], *, metric: str | None = None, across: Sequence[str] = ()) -> list[Group]:
    """The entries, sorted into groups of like ones; `across` looks past other training text (`train`).

    `metric`: what they shall be held against each other in; by default bits per byte of language models, else what
    their task monitors. UserError where no run has it.
    """
    if metric is not None and not any(has(entry, metric) for entry in entries):
        known = {name for entry in entries for name in entry.metrics}
        raise UserError(f"--metric {metric}: no run has it{did_you_mean(metric, known)}")
    found: list[tuple[dict[str, Any], Group]] = []
    complete_first = sorted(entries, key=lambda entry: UNKNOWN in likeness(entry, metric).values())
    for entry in complete_first:
        mine = {name: value for name, value in likeness(entry, metric).items() if name not in across}
        for known, group in found:
            if all(UNKNOWN in (value, mine[name]) or value == mine[name] for name, value in known.items()):
                group.entries.append(entry)
                break
        else:
            chosen = metric or default_metric(entry)
            reason = [] if not found else differences(found[0][0], mine)
            found.append((mine, Group(chosen, "max" if entry.maximises(chosen) else "min", [entry], reason)))
    place = {id(entry): number for number, entry in enumerate(entries)}
    for _, group in found:
        group.entries.sort(key=lambda entry: place[id(entry)])
        group.notes += _notes(group)
    return [group for _, group in found]


def likeness(entry: Entry, metric: str | None = None) -> dict[str, Any]:
    """What two runs must share for their numbers to mean the same; UNKNOWN for what this one cannot say yet."""
    hashes = entry.summary.hashes
    preprocessor = {name: value for name, value in hashes.items() if name not in ("train", "validation", "test")}
    tokenizer: Any = preprocessor or UNKNOWN
    if entry.summary.measures is None:  # it has not come so far as to say in what it may be compared
        tokenizer = UNKNOWN
    elif across_tokenizers(entry, metric):
        lost = hidden(entry)
        tokenizer = (
            UNKNOWN if lost is None else preprocessor | {"unknown_tokens": int(lost)} if lost else NOTHING_HIDDEN
        )
    options = {key: value for key, value in entry.settings.items() if key.startswith("task.")}
    trained_by = entry.summary.trained_by
    measured = {key: value for key, value in options.items() if key.removeprefix("task.") not in (trained_by or ())}
    return {
        "task": entry.task,
        "validation": hashes.get("validation", UNKNOWN),
        "train": hashes.get("train", UNKNOWN),
        "split": entry.settings.get("data.split_by"),
        "context": _known(entry.summary.context),
        "tokenizer": tokenizer,
        "signatures": _known(entry.summary.signatures),
        "decoding": measured if trained_by is not None else UNKNOWN,
    }


def _known(value: Any) -> Any:
    return UNKNOWN if value is None else value


WORDS = {
    "task": "another task",
    "validation": "other validation text",
    "train": "other training text (--across train looks past that)",
    "split": "data.split_by cuts validation off by another rule",
    "context": "another context policy of evaluation",
    "tokenizer": "another tokenizer",
    "signatures": "the metric is reckoned in another way",
    "decoding": "another way of asking the model",
}
"""Kinds of unlikeness, in words."""


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """In what `other` is unlike `one`, a short sentence each; of other tasks nothing else is told."""
    if one["task"] != other["task"]:
        return [f"{WORDS['task']}: {other['task']}, not {one['task']}"]
    return [
        f"{WORDS[name]}: {_told(value, one[name])}, not {_told(one[name], value)}"
        for name, value in other.items()
        if UNKNOWN not in (value, one[name]) and value != one[name]
    ]


def default_metric(entry: Entry) -> str:
    """What runs like this one are held against each other in."""
    return measures.compared_by(entry.summary)


def across_tokenizers(entry: Entry, metric: str | None) -> bool:
    """Whether runs like this one are held against each other in what does not depend on their tokenizers."""
    return measures.tokenizer_free(entry.summary, metric or default_metric(entry))


def hidden(entry: Entry) -> float | None:
    """Tokens of validation that hide their spelling behind <unk>, where bits per byte are of less text.

    None where the run has not come so far as to count them.
    """
    unknown = entry.summary.unknown
    return None if unknown is None else number(unknown.get("validation", 0))


def has(entry: Entry, metric: str) -> bool:
    """Whether the run has this metric of validation."""
    return entry.metric(metric) is not None


def _notes(group: Group) -> list[str]:
    kinds = {
        name: {str(entry.summary.hashes.get(name)) for entry in group.entries} - {"None"}
        for name in ("tokenizer", "train")
    }
    notes = []
    if (several := len(kinds["tokenizer"])) > 1:
        notes.append(f"{several} tokenizers: held against each other in bits per byte only")
    if (several := len(kinds["train"])) > 1:
        notes.append(f"{several} training texts, as asked for: a difference may be the text's")
    return notes


def _told(value: Any, beside: Any) -> str:
    """A value on one line; of mappings what differs, of hashes the beginning."""
    if isinstance(value, dict):
        other = beside if isinstance(beside, dict) else {}
        kept = {key: inner for key, inner in value.items() if key not in other or other[key] != inner}
        return " ".join(f"{key.rpartition('.')[2]}={_told(inner, None)}" for key, inner in kept.items()) or "none"
    text = str(value)
    return text[:8] if len(text) == 32 and text.isalnum() else text
