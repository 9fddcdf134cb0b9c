"""`--across KEY`: compare runs although a condition makes them incomparable, and say what the result does not mean."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from seqtrain.compare.conditions import Conditions
from seqtrain.compare.settings import last_word
from seqtrain.errors import UserError, did_you_mean

# What a difference may come from where runs of unlike conditions are compared.
NOT_MEANT = {
    "validation": "each was measured on text of its own, and a better number may come of easier text",
    "test": "each was measured on text of its own, and a better number may come of easier text",
    "lanes": "a better number may come of more context",
    "split": "validation was cut off by unlike rules, and a better number may come of easier text",
    "train": "a difference may come of the training text",
    "labels": "unlike labels were to be told apart, and a better number may come of fewer",
    "context": "a better number may come of more context, or of other examples",
    "tokenizer": "a number per token is of unlike tokens, and a better one may come of shorter tokens",
    "signatures": "the metric was computed by unlike rules",
    "decoding": "the models were asked in unlike ways",
    "unit": "the numbers have unlike units",
}
# Nothing folds these: no sentence could say what a difference means.
NEVER = {
    "task": "runs of unlike tasks measure unlike things, and nothing makes one verdict of them",
    "direction": "of the one less is better, of the other more, and no verdict is about both",
    "leak": "a number of text that was learnt by heart measures nothing; train on text without it",
}
OF_ENTRIES = ("context", "decoding")  # conditions whose entries may be named one by one: `max_length`, `beam`


def split_keys(words: Sequence[str]) -> list[str]:
    """Return the keys of `--across`, each once."""
    keys: dict[str, None] = {}
    for word in words:
        for key in word.split(","):
            keys[key.strip()] = None
    return list(keys)


def check_across(keys: Sequence[str], measured: Sequence[Conditions]) -> None:
    """Check the keys of `--across` against the runs.

    Args:
        measured: the conditions of each run.

    Raises:
        UserError: a key is unknown, can never be folded, or keeps no runs apart that the others do not.
    """
    known = [*NOT_MEANT, *NEVER, *_entries(measured)]
    unlike = _unlike(measured)
    for key in keys:
        if last_word(key) not in known:
            near = did_you_mean(key, known)  # of a few words it lists all
            listed = "" if "known:" in near else f"; known: {', '.join(known)}"
            raise UserError(f"--across {key}: no such condition{listed}{near}")
        if key in NEVER:
            raise UserError(f"--across {key}: {NEVER[key]}")
        if not any(_names(key, one, other) for one, other in unlike):
            raise UserError(f"--across {key}: keeps no runs apart here; leave it out")
    for key in keys:
        beside: list[str] = []
        for one, other in unlike:
            rest = one.across(keys).differing(other.across(keys))
            if _names(key, one, other) and not rest:
                break
            beside = beside or rest
        else:
            raise UserError(_kept_apart(key, keys, beside))


def not_meant(keys: Sequence[str], measured: Sequence[Conditions]) -> str:
    """The first line of a verdict on runs that these keys have put together; empty where none of them did.

    Args:
        measured: the conditions of each run of a group.
    """
    used = []
    meanings: dict[str, None] = {}
    unlike = _unlike(measured)
    for key in keys:
        names: dict[str, None] = {}
        for one, other in unlike:
            names |= dict.fromkeys(_names(key, one, other))
        if names:
            used.append(key)
            meanings |= dict.fromkeys(NOT_MEANT[name] for name in names)
    if not used:
        return ""
    return (
        f"across {', '.join(used)}, as asked for: {'; '.join(meanings)}: so what follows says which number is better, "
        "and not which model"
    )


def remedy(names: Sequence[str], keys: Sequence[str]) -> str:
    """Return the `--across` hint that compares two groups that differ in these conditions; empty if no key does.

    Args:
        names: the conditions in which the groups differ.
        keys: the keys that `--across` already has.
    """
    if not names or not NEVER.keys().isdisjoint(names):
        return ""
    return f"--across {','.join((*keys, *names))} compares them all the same, and says what that does not mean"


def _unlike(measured: Sequence[Conditions]) -> list[tuple[Conditions, Conditions]]:
    """Return all pairs of runs that are kept apart; one run stands for all runs with equal conditions."""
    kinds: dict[str, Conditions] = {}
    for each in measured:
        kinds.setdefault(repr(each), each)
    pairs = []
    for one, other in combinations(kinds.values(), 2):
        if one.differing(other):
            pairs.append((one, other))
    return pairs


def _names(key: str, one: Conditions, other: Conditions) -> list[str]:
    """Return the conditions that keep two runs apart and that `key` names, or names an entry of."""
    if key in NOT_MEANT:
        return [key] if key in one.differing(other) else []
    names = []
    word = last_word(key)
    for name in one.differing(other):
        if name in OF_ENTRIES and _entry(one, name, word) != _entry(other, name, word):
            names.append(name)
    return names


def _entry(measured: Conditions, name: str, word: str) -> str:
    """Return an entry of a condition as text, such as `max_length` of `context`; empty if there is no such entry."""
    found = measured.values[name]
    for key, value in found.items() if isinstance(found, dict) else ():
        if last_word(key) == word:
            return repr(value)
    return ""


def _entries(measured: Sequence[Conditions]) -> list[str]:
    """The names of the entries of conditions that have some."""
    words: dict[str, None] = {}
    for each in measured:
        for name in OF_ENTRIES:
            found = each.values[name]
            if isinstance(found, dict):
                words |= dict.fromkeys(map(last_word, found))
    return list(words)


def _kept_apart(key: str, keys: Sequence[str], beside: Sequence[str]) -> str:
    """Return the message on a key that folds no runs by itself."""
    words = f"--across {key}: folds nothing: runs that it keeps apart differ in {', '.join(beside)} as well"
    more = remedy(beside, keys)
    if more:
        return f"{words}; write --across {','.join((*keys, *beside))}"
    never = next(name for name in beside if name in NEVER)
    return f"{words}; {NEVER[never]}"
