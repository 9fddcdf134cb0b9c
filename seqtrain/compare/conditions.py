"""The conditions of a measurement: what two runs must share for their numbers to mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqtrain.compare.entries import Entry, number
from seqtrain.compare.folds import whole_of
from seqtrain.compare.settings import last_word
from seqtrain.runs import measures

# Stands for every tokenizer without <unk>: language models of all such tokenizers meet in bits per byte.
NOTHING_HIDDEN = "one that hides nothing behind <unk>"
OF_ITS_FOLD = "made of the train rows of each fold"
UNKNOWN = object()  # what a run that has not come so far cannot say of itself: it agrees with every value
# What a metric of whole answers does not depend on: its examples are the same however they are read.
OF_READING = ("tokenizer", "context")
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Conditions:
    """The conditions of one run in one metric."""

    values: dict[str, Any]  # by the names that `--across` takes; UNKNOWN for what the run cannot say yet
    of_answers: bool = False  # the metric counts whole answers to examples: see `Metric.of_answers`
    answered_by: frozenset[str] = frozenset()  # options of the task that change how an answer is searched for

    def differing(self, other: Conditions) -> list[str]:
        """Return the names of the conditions that both runs know and that differ."""
        both_of_answers = self.of_answers and other.of_answers
        # Only what both say: an older version said nothing of it.
        free = self.answered_by & other.answered_by
        names = []
        for name, value in other.values.items():
            mine = self.values.get(name, UNKNOWN)
            if UNKNOWN in (value, mine) or (both_of_answers and name in OF_READING):
                continue
            if name == "decoding":
                value, mine = _without(value, free), _without(mine, free)
            if value != mine:
                names.append(name)
        return names

    def across(self, keys: Sequence[str]) -> Conditions:
        """Return the conditions without these ones, or without these entries of one, such as `beam` of `decoding`."""
        # A key that is a condition is never an entry as well, should a task have an option of that name.
        words = frozenset(last_word(key) for key in keys if key not in self.values)
        values = {}
        for name, value in self.values.items():
            if name not in keys:
                values[name] = _without(value, words)
        return replace(self, values=values)

    @property
    def is_complete(self) -> bool:
        """True if the run states all its conditions."""
        return UNKNOWN not in self.values.values()


def conditions(entry: Entry, metric: str) -> Conditions:
    """Return the conditions, besides the weights, that a run's numbers in a metric depend on."""
    summary = entry.summary
    said = measures.said(summary, metric)
    whole = whole_of(entry)
    values = {
        "task": entry.task,
        "direction": _known(measures.better(summary, metric)),
        "unit": said.get("unit", UNKNOWN),
        **_text(entry, whole),
        "train": whole or summary.hashes.get("train", UNKNOWN),
        "labels": _labels(entry),
        "context": _known(summary.context),
        "tokenizer": OF_ITS_FOLD if whole else _tokenizer(entry, metric),
        "signatures": _signature(entry, metric),
        "decoding": _decoding(entry),
        "leak": entry.leak is not None,
    }
    return Conditions(values, measures.of_answers(summary, metric) is True, frozenset(summary.answered_by or ()))


def unknown_tokens(entry: Entry) -> float | None:
    """Return the number of validation tokens that are <unk>; bits per byte do not cover their spelling.

    None if the run has not counted them yet.
    """
    unknown = entry.summary.unknown
    return None if unknown is None else number(unknown.get("validation", 0))


def _text(entry: Entry, whole: str | None) -> dict[str, Any]:
    """Return the conditions that identify the text on which the compared figures were measured.

    Folds of one `whole` each have rows of their own and are compared fold by fold.
    """
    if whole is not None:
        return {entry.split: whole}
    if entry.evaluation is None:
        validation = entry.summary.hashes.get("validation", UNKNOWN)
        return {"validation": validation, "split": entry.settings.get("data.split_by")}
    return {"test": entry.evaluation.hash, "lanes": entry.evaluation.options.get("eval_lanes")}


def _tokenizer(entry: Entry, metric: str) -> Any:
    """The hashes of all that turns text into ids, or what stands for tokenizers that may be compared."""
    hashes = _of_preprocessor(entry)
    hashes.pop("labels", None)
    # Of train, which is a condition by itself: no number of an answer depends on one of these alone.
    hashes.pop("scale", None)
    hashes.pop("series", None)
    if entry.summary.measures is None:  # it has not come so far as to say in what it may be compared
        return UNKNOWN
    if not measures.tokenizer_free(entry.summary, metric):
        return hashes or UNKNOWN
    unknown = unknown_tokens(entry)
    if unknown is None:
        return UNKNOWN
    # A tokenizer that hides text is like itself alone, and only where it hides as much.
    return hashes | {"unknown_tokens": int(unknown)} if unknown else NOTHING_HIDDEN


def _labels(entry: Entry) -> Any:
    """The hash of the names of labels; None where the task reads none."""
    hashes = _of_preprocessor(entry)
    return hashes.get("labels") if hashes else UNKNOWN


def _of_preprocessor(entry: Entry) -> dict[str, Any]:
    """The hashes of all that turns text into ids and labels; empty where the run has not come so far."""
    hashes = {}
    for name, value in entry.summary.hashes.items():
        if name not in SPLITS:
            hashes[name] = value
    return hashes


def _signature(entry: Entry, metric: str) -> Any:
    """Return the signature of how the metric was computed; signatures of other metrics are left out."""
    signatures = entry.summary.signatures
    if signatures is None:
        return UNKNOWN
    return {metric: signatures[metric]} if metric in signatures else {}


def _decoding(entry: Entry) -> Any:
    """Return the options of the task that change what is measured; options that change only training may differ."""
    trained_by = entry.summary.trained_by
    if trained_by is None:
        return UNKNOWN
    options = {}
    for key, value in entry.settings.items():
        if key.startswith("task.") and key.removeprefix("task.") not in trained_by:
            options[key] = value
    return options


def _without(value: Any, words: frozenset[str]) -> Any:
    """A mapping without the keys that end in these words."""
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, inner in value.items():
        if last_word(key) not in words:
            kept[key] = inner
    return kept


def _known(value: Any) -> Any:
    return UNKNOWN if value is None else value
