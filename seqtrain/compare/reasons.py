"""Reasons why runs stand apart, in words: the settings that differ or, if none does, what must have changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from seqtrain.compare.conditions import OF_READING, conditions
from seqtrain.compare.entries import Entry, last_word
from seqtrain.compare.filters import written
from seqtrain.runs import measures

WORDS = {
    "task": "another task",
    "validation": "other validation text",
    "test": "other test text",
    "lanes": "test was read on another number of lanes",
    "train": "other training text",
    "split": "data.split_by cuts validation off by another rule",
    "context": "another context policy of evaluation",
    "tokenizer": "another tokenizer",
    "signatures": "the metric is reckoned in another way",
    "decoding": "another way of asking the model",
    "labels": "another set of labels",
    "direction": "of one less is better, of the other more",
    "unit": "the metric has another unit",
    "leak": "validation text was trained on",
}  # what is said where a condition differs
# Settings that decide a condition of which a run knows no more than a hash.
CAUSES = {
    "validation": ("data",),
    "train": ("data",),
    "tokenizer": ("tokenizer", "init_from", "task.shared_vocab", "data"),
    "labels": ("data",),
}
# How text is laid out, which does not change it.
NO_CAUSES = {f"data.{name}" for name in ("batch_size", "batch_tokens", "max_length", "eval_lanes")}
FILES = {
    "tokenizer": "tokenizer",
    "target_tokenizer": "tokenizer of targets",
}
MORE = {"min": "less", "max": "more"}
MAX_SETTINGS = 4  # that are named


def in_words(name: str, before: Any, value: Any, beside: Entry, entry: Entry) -> str:
    """One sentence on a condition in which a run differs.

    Args:
        name: The condition, one of WORDS.
        before: Its value of the run that it is held against.
        value: Its value of this run.
        beside: The run that it is held against.
        entry: The run.
    """
    if name == "leak":
        return entry.leak or WORDS[name]
    if name == "test":  # a run says only the hash of what evaluate read
        return WORDS[name]
    if name in ("validation", "train"):
        cause = _set_otherwise(name, beside, entry) or "the files themselves have changed"
        return f"{WORDS[name]}: {_sizes(name, beside, entry)}{cause}"
    if name == "labels":
        return f"{WORDS[name]}: {_set_otherwise(name, beside, entry) or 'made from other text'}"
    if name == "direction":
        return f"{WORDS[name]}: {MORE[value]} in {entry.name}, {MORE[before]} in {beside.name}"
    if name == "tokenizer" and isinstance(before, dict) and isinstance(value, dict):
        return _of_tokenizers(before, value, beside, entry)
    if name == "tokenizer":  # one of them hides text, the other does not
        before, value = _unknown_words(before), _unknown_words(value)
    return f"{WORDS[name]}: {_brief(value, before)}, not {_brief(before, value)}"


def unsaid(name: str, metric: str, entries: Sequence[Entry]) -> str:
    """Return a note on a condition that keeps runs apart: what a run does not state, or a metric that compares them.

    Args:
        name: the condition.
        metric: in which they are apart.
        entries: two runs.
    """
    if name not in (*OF_READING, "decoding"):
        return ""
    for entry in entries:
        known = measures.of_answers(entry.summary, metric)
        is_free = any(measures.of_answers(other.summary, metric) for other in entries)
        if known is None and is_free:
            return f" ({entry.name}, of an older version, does not say whether its {metric} counts whole answers)"
    one, other = entries
    for known_metric in other.summary.measures or ():
        has_both = one.metric(known_metric) is not None and other.metric(known_metric) is not None
        if has_both and not conditions(one, known_metric).differing(conditions(other, known_metric)):
            return f" (--metric {known_metric} compares them)"
    return ""


def reading_words(entries: Sequence[Entry], answered_by: Collection[str]) -> list[str]:
    """Return the settings of reading and of answering in which runs differ, such as `beam 1 and 5`.

    Args:
        entries: the runs of a group.
        answered_by: the task's options that change how an answer is searched for.
    """
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        for key, value in (entry.summary.context or {}).items():
            found.setdefault(key, {})[written(value)] = None
        for option in sorted(answered_by):
            if f"task.{option}" in entry.settings:
                found.setdefault(option, {})[written(entry.settings[f"task.{option}"])] = None
    words = []
    for key, values in found.items():
        if len(values) > 1:
            words.append(f"{key} {' and '.join(values)}")
    return words


def _sizes(split: str, beside: Entry, entry: Entry) -> str:
    """Return the sizes of a split that differ, such as `1,200 documents, not 1,000; `; empty if they are not known."""
    before, value = beside.summary.sizes.get(split), entry.summary.sizes.get(split)
    if not isinstance(before, dict) or not isinstance(value, dict):
        return ""
    for unit in ("documents", "bytes"):
        mine, theirs = value.get(unit), before.get(unit)
        if isinstance(mine, int) and isinstance(theirs, int) and mine != theirs:
            return f"{mine:,} {unit}, not {theirs:,}; "
    return "of the same size; "


def _of_tokenizers(before: dict[str, Any], value: dict[str, Any], beside: Entry, entry: Entry) -> str:
    """Return which of the files that turn text into numbers differ, and why."""
    differing = [key for key in {**before, **value} if before.get(key) != value.get(key)]
    if differing == ["unknown_tokens"]:
        return f"{WORDS['tokenizer']}: {_unknown_words(value)}, not {_unknown_words(before)}"
    files = []
    for key in differing:
        if key in FILES:
            files.append(FILES[key])
    cause = _set_otherwise("tokenizer", beside, entry) or "made from other text"
    return f"another {' and '.join(files)}: {cause}"


def _unknown_words(value: Any) -> str:
    """Return how much text a tokenizer hides, in words."""
    if isinstance(value, dict) and "unknown_tokens" in value:
        return f"one that hides {value['unknown_tokens']:,} tokens of validation behind <unk>"
    return str(value)


def _set_otherwise(name: str, beside: Entry, entry: Entry) -> str:
    """The settings that decide a condition, as far as they differ, such as `data.size=800, not 8000`."""
    told = []
    keys = dict.fromkeys((*entry.settings, *beside.settings))
    for cause in CAUSES[name]:
        # Options of another source, or tokenizer, say no more than that it is another one.
        is_other = entry.settings.get(cause) != beside.settings.get(cause)
        for key in keys:
            if key == cause or (key.startswith(f"{cause}.") and not is_other and key not in NO_CAUSES):
                value, before = entry.settings.get(key), beside.settings.get(key)
                if value != before:
                    told.append(f"{key}={_brief(value, None)}, not {_brief(before, None)}")
    more = f" and {len(told) - MAX_SETTINGS} more" if len(told) > MAX_SETTINGS else ""
    return "; ".join(told[:MAX_SETTINGS]) + more


def _brief(value: Any, beside: Any) -> str:
    """Return a value on one line; of a mapping, only what differs from `beside`."""
    if value is None:
        return "null"
    if not isinstance(value, dict):
        return str(value)
    others = beside if isinstance(beside, dict) else {}
    words = []
    for key, inner in value.items():
        if key not in others or others[key] != inner:
            words.append(f"{last_word(key)}={_brief(inner, None)}")
    return " ".join(words) or "none"
