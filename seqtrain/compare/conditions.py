"""The conditions of a measurement: what two runs must share for their numbers to mean the same.

RULES has, for each condition, a function that reads its value from a run, the words for runs that differ in it, and
what a comparison across it (`--across`) does not mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

from seqtrain.compare.entries import Entry, number
from seqtrain.compare.filters import written
from seqtrain.compare.folds import whole_of
from seqtrain.compare.settings import last_word
from seqtrain.errors import UserError, did_you_mean
from seqtrain.runs import measures

UNKNOWN = object()  # value of a condition that a run has not recorded yet: it agrees with every value
# Language models of all tokenizers without <unk> are compared in bits per byte.
NOTHING_HIDDEN = "one that hides nothing behind <unk>"
SPLITS = ("train", "validation", "test")
OF_READING = ("tokenizer", "context")  # a metric of whole answers does not depend on them
# Settings of the layout, which do not change the text.
NO_CAUSES = {f"data.{name}" for name in ("batch_size", "batch_tokens", "max_length", "eval_lanes")}
MAX_SETTINGS = 4  # settings that a reason names


@dataclass(frozen=True)
class Conditions:
    """The conditions of one run for one metric."""

    values: dict[str, Any]  # by the names of RULES
    of_answers: bool = False  # the metric counts whole answers to examples: see `Metric.of_answers`

    def differing(self, other: Conditions) -> list[str]:
        """Return the names of the conditions that both runs know and that differ."""
        names = []
        for name, value in other.values.items():
            mine = self.values.get(name, UNKNOWN)
            is_free = self.of_answers and other.of_answers and name in OF_READING
            if UNKNOWN not in (value, mine) and not is_free and value != mine:
                names.append(name)
        return names

    def across(self, keys: Sequence[str]) -> Conditions:
        """Return the conditions without those of `keys`."""
        return replace(self, values={name: value for name, value in self.values.items() if name not in keys})

    @property
    def is_complete(self) -> bool:
        """True if the run states all its conditions."""
        return UNKNOWN not in self.values.values()


def conditions(entry: Entry, metric: str) -> Conditions:
    """Return the conditions, besides the weights, that a run's numbers in a metric depend on."""
    values = {}
    for name, rule in RULES.items():
        # A validation result has no condition of test, and vice versa.
        if rule.split in (None, entry.split):
            values[name] = rule.value_of(entry, metric)
    return Conditions(values, measures.of_answers(entry.summary, metric) is True)


def unknown_tokens(entry: Entry) -> float | None:
    """Return the number of validation tokens that are <unk>; bits per byte do not cover their spelling.

    None if the run has not counted them yet.
    """
    unknown = entry.summary.unknown
    return None if unknown is None else number(unknown.get("validation", 0))


# -- the value of each condition -----------------------------------------------------------------------------------


def _known(value: Any) -> Any:
    return UNKNOWN if value is None else value


def _measured_text(entry: Entry, metric: str) -> Any:
    """Return the identity of the measured text. Folds of one set share it, as they are compared fold by fold."""
    whole = whole_of(entry)
    if whole is not None:
        return whole
    if entry.evaluation is not None:
        return entry.evaluation.hash
    return entry.summary.hashes.get("validation", UNKNOWN)


def _lanes(entry: Entry, metric: str) -> Any:
    return entry.evaluation and entry.evaluation.options.get("eval_lanes")


def _train(entry: Entry, metric: str) -> Any:
    return whole_of(entry) or entry.summary.hashes.get("train", UNKNOWN)


def _tokenizer(entry: Entry, metric: str) -> Any:
    """Return the hashes of all that turns text into ids, or a common value for tokenizers that may be compared."""
    if whole_of(entry):
        return "made of the train rows of each fold"
    if entry.summary.measures is None:
        return UNKNOWN
    hashes = _of_preprocessor(entry)
    for name in ("labels", "scale", "series"):  # conditions of their own, or parts of train
        hashes.pop(name, None)
    if not measures.tokenizer_free(entry.summary, metric):
        return hashes or UNKNOWN
    unknown = unknown_tokens(entry)
    if unknown is None:
        return UNKNOWN
    # A tokenizer that hides text is comparable only to itself, and only if it hides the same number of tokens.
    return hashes | {"unknown_tokens": int(unknown)} if unknown else NOTHING_HIDDEN


def _labels(entry: Entry, metric: str) -> Any:
    """Return the hash of the label names; None if the task reads no labels."""
    hashes = _of_preprocessor(entry)
    return hashes.get("labels") if hashes else UNKNOWN


def _of_preprocessor(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in entry.summary.hashes.items() if name not in SPLITS}


def _signature(entry: Entry, metric: str) -> Any:
    """Return the metric's signature, which identifies how it was computed."""
    signatures = entry.summary.signatures
    if signatures is None:
        return UNKNOWN
    return {metric: signatures[metric]} if metric in signatures else {}


def _decoding(entry: Entry, metric: str) -> Any:
    """Return the task options that change what is measured, not only training or the search for answers."""
    summary = entry.summary
    if summary.trained_by is None:
        return UNKNOWN
    free = [*summary.trained_by]
    if measures.of_answers(summary, metric):
        free += summary.answered_by or ()
    options = {}
    for key, value in entry.settings.items():
        if key.startswith("task.") and key.removeprefix("task.") not in free:
            options[key] = value
    return options


class Rule(NamedTuple):
    """One condition."""

    value_of: Callable[[Entry, str], Any]  # from a run and a metric
    differs: str  # words for runs that differ in it
    not_meant: str  # what a comparison across it does not mean or, if it is final, why there is none
    is_final: bool = False  # `--across` refuses it
    causes: tuple[str, ...] = ()  # groups of settings that decide the value, if a run knows only its hash
    split: str | None = None  # the only split that has this condition


_EASIER = "each was measured on its own text, and a better number may come from easier text"
RULES = {
    "task": Rule(
        lambda entry, metric: entry.task,
        "another task",
        "runs of different tasks cannot be compared",
        is_final=True,
    ),
    "direction": Rule(
        lambda entry, metric: _known(measures.better(entry.summary, metric)),
        "the metric is better in another direction",
        "smaller is better for one and larger for the other, so they cannot be compared",
        is_final=True,
    ),
    "unit": Rule(
        lambda entry, metric: measures.described(entry.summary, metric).get("unit", UNKNOWN),
        "the metric has another unit",
        "the numbers have different units",
    ),
    "validation": Rule(_measured_text, "other validation text", _EASIER, causes=("data",), split="validation"),
    "split": Rule(
        lambda entry, metric: None if whole_of(entry) else entry.settings.get("data.split_by"),
        "data.split_by cuts validation off by another rule",
        "validation was split off by different rules, and a better number may come from easier text",
        split="validation",
    ),
    "test": Rule(_measured_text, "other test text", _EASIER, causes=("data",), split="test"),
    "lanes": Rule(
        _lanes,
        "test was read on another number of lanes",
        "a better number may come from more context",
        split="test",
    ),
    "train": Rule(_train, "other training text", "a difference may come from the training text", causes=("data",)),
    "labels": Rule(
        _labels,
        "another set of labels",
        "the labels differ, and a better number may come from fewer labels",
        causes=("data",),
    ),
    "context": Rule(
        lambda entry, metric: _known(entry.summary.context),
        "another context policy of evaluation",
        "a better number may come from more context, or from other examples",
    ),
    "tokenizer": Rule(
        _tokenizer,
        "another tokenizer",
        "a number per token depends on the tokens, and a better one may come from shorter tokens",
        causes=("tokenizer", "init_from", "task.shared_vocab", "data"),
    ),
    "signatures": Rule(
        _signature, "the metric is computed in another way", "the metric was computed in different ways"
    ),
    "decoding": Rule(_decoding, "other decoding options", "the decoding options differ"),
    "leak": Rule(
        lambda entry, metric: entry.leak is not None,
        "validation text was trained on",
        "a number on text that was learnt by heart measures nothing; train on text without it",
        is_final=True,
    ),
}


# -- where two runs differ -----------------------------------------------------------------------------------------


def in_words(name: str, metric: str, beside: Entry, entry: Entry) -> str:
    """Return a sentence on a condition in which a run differs from the run `beside`."""
    rule = RULES[name]
    if name == "leak" or name == "test":  # the hash of a test text adds no information
        return entry.leak or rule.differs
    before, value = rule.value_of(beside, metric), rule.value_of(entry, metric)
    hidden = [_unknown_words(each) for each in (value, before)]
    if name == "tokenizer" and hidden[0] != hidden[1]:
        detail = f"{hidden[0]}, not {hidden[1]}"
    elif rule.causes:
        unset = "the files themselves have changed" if name in SPLITS else "made from other text"
        detail = _set_otherwise(rule.causes, beside, entry) or unset
    else:
        detail = f"{_brief(value, before)}, not {_brief(before, value)}"
    return f"{rule.differs}: {detail}{_metric_without(name, beside, entry)}"


def _metric_without(name: str, beside: Entry, entry: Entry) -> str:
    """Return the metric that compares runs whose reading or decoding differs; empty if there is none."""
    if name not in (*OF_READING, "decoding"):
        return ""
    for known in entry.summary.measures or ():
        has_both = beside.metric(known) is not None and entry.metric(known) is not None
        if has_both and not conditions(beside, known).differing(conditions(entry, known)):
            return f" (--metric {known} compares them)"
    return ""


def _unknown_words(value: Any) -> str:
    """Describe how much text a tokenizer hides."""
    if isinstance(value, dict) and "unknown_tokens" in value:
        return f"one that hides {value['unknown_tokens']:,} tokens of validation behind <unk>"
    return NOTHING_HIDDEN


def _set_otherwise(causes: Sequence[str], beside: Entry, entry: Entry) -> str:
    """Return the differing settings that decide a condition, such as `data.size=800, not 8000`."""
    found = []
    keys = dict.fromkeys((*entry.settings, *beside.settings))
    for cause in causes:
        # If the source or tokenizer is another one, its options add no information.
        is_other = entry.settings.get(cause) != beside.settings.get(cause)
        for key in keys:
            if key == cause or (key.startswith(f"{cause}.") and not is_other and key not in NO_CAUSES):
                value, before = entry.settings.get(key), beside.settings.get(key)
                if value != before:
                    found.append(f"{key}={written(value)}, not {written(before)}")
    more = f" and {len(found) - MAX_SETTINGS} more" if len(found) > MAX_SETTINGS else ""
    return "; ".join(found[:MAX_SETTINGS]) + more


def _brief(value: Any, beside: Any) -> str:
    """Return a value on one line; for a mapping, only the entries that differ from `beside`."""
    if not isinstance(value, dict):
        return written(value)
    others = beside if isinstance(beside, dict) else {}
    words = []
    for key, inner in value.items():
        if key not in others or others[key] != inner:
            words.append(f"{last_word(key)}={inner}")
    return " ".join(words) or "none"


# -- `--across` ----------------------------------------------------------------------------------------------------


def split_keys(words: Sequence[str]) -> list[str]:
    """Return the keys of `--across`, each once."""
    return list(dict.fromkeys(key.strip() for word in words for key in word.split(",")))


def check_across(keys: Sequence[str], measured: Sequence[Conditions]) -> None:
    """Check the keys of `--across` against the conditions of each run.

    Raises:
        UserError: a key is unknown, is final, or separates no runs.
    """
    for key in keys:
        if key not in RULES:
            near = did_you_mean(key, RULES)  # lists all if there are only a few
            listed = "" if "known:" in near else f"; known: {', '.join(RULES)}"
            raise UserError(f"--across {key}: no such condition{listed}{near}")
        if RULES[key].is_final:
            raise UserError(f"--across {key}: {RULES[key].not_meant}")
        if key not in _differing(measured):
            raise UserError(f"--across {key}: separates no runs here; leave it out")


def not_meant(keys: Sequence[str], measured: Sequence[Conditions]) -> str:
    """Return the first line of a verdict on runs that these keys have joined; empty if none did."""
    used = [key for key in keys if key in _differing(measured)]
    if not used:
        return ""
    meanings = dict.fromkeys(RULES[key].not_meant for key in used)
    return f"across {', '.join(used)}: {'; '.join(meanings)}: the sentences below compare numbers, not models"


def remedy(names: Sequence[str], keys: Sequence[str]) -> str:
    """Return the `--across` hint that joins two groups; empty if no key does.

    Args:
        names: the conditions in which the groups differ.
        keys: the keys that `--across` already has.
    """
    if not names or any(RULES[name].is_final for name in names):
        return ""
    return f"--across {','.join((*keys, *names))} compares them anyway, and says what the result does not mean"


def _differing(measured: Sequence[Conditions]) -> set[str]:
    """Return the conditions in which any two runs differ."""
    kinds = {repr(each): each for each in measured}  # one run represents all runs with equal conditions
    return {name for one, other in combinations(kinds.values(), 2) for name in one.differing(other)}
