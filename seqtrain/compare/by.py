"""`--by KEY`: further keys that set runs apart, such as the commit they ran at or their label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from seqtrain.compare.entries import Entry, short_names
from seqtrain.compare.filters import written
from seqtrain.compare.settings import differing_keys
from seqtrain.config.nodes import flat
from seqtrain.errors import UserError, did_you_mean, first_few


class Distinguished(Protocol):
    """The part of a variant that `--by` needs."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that identify the variant, including the values of `--by`."""
        ...


V = TypeVar("V", bound=Distinguished)

COMMIT, LABEL, TAG = "commit", "label", "tag"
NAMING = {LABEL: "run.label=NAME", TAG: "run.tags=[NAME]"}
COMMIT_DIGITS = 7  # as git itself shows a commit
UNSAID = "none"  # where a run does not say it


def resolved_by(entries: Sequence[Entry], words: Sequence[str]) -> list[str]:
    """The whole keys that the words of `--by` stand for: `commit`, `label`, `tag`, or keys of the config.

    Args:
        words: each may hold several keys, separated by commas; of a key its last word is enough where it is the only
            one that ends so.

    Raises:
        UserError: where no run has such a key, or several keys end in it.
    """
    keys: dict[str, None] = {}
    for word in ",".join(words).split(",") if words else ():
        keys[_resolved(entries, word.strip())] = None
    return list(keys)


def by_value(entry: Entry, key: str) -> str:
    """Return a run's value of a key of `--by`, as it is written in a name."""
    if key == COMMIT:
        return " and ".join(map(short_commit, codes(entry))) or UNSAID
    if key == LABEL:
        return written(_of_user(entry, "label") or UNSAID)
    if key == TAG:
        tags = _of_user(entry, "tags")
        return "+".join(sorted(map(str, tags))) if isinstance(tags, list) and tags else UNSAID
    return written(_config_value(entry, key))


def strata(variants: Sequence[V], by: Sequence[str]) -> list[list[V]]:
    """The variants that differ in nothing but the keys of `--by`, together; each list in the order given.

    All of them together, where no two are so alike: what else differs stands in their names.
    """
    found: dict[str, list[V]] = {}
    for variant in variants:
        others = []
        for key, value in variant.settings.items():
            if key not in by:
                others.append((key, repr(value)))
        found.setdefault(repr(sorted(others)), []).append(variant)
    parts = list(found.values())
    return parts if any(len(part) > 1 for part in parts) else [list(variants)]


def by_caveats(words: Sequence[str], parts: Sequence[Sequence[Distinguished]]) -> list[str]:
    """Return the caveats of a verdict that was requested with `--by`.

    Args:
        words: the keys as sentences name them.
        parts: the variants of a group as `strata` gives them.
    """
    if not words:
        return []
    name = ",".join(words)
    caveats = []
    for part in parts:
        caveats += _part_caveats(name, words, part)
    several = [part for part in parts if len(part) > 1]
    if len(several) > 1:
        caveats.append(
            f"--by {name}: variants are held against each other where nothing else differs; that makes {len(several)} "
            "comparisons, each of which holds at 95 % by itself"
        )
    return list(dict.fromkeys(caveats))


def _part_caveats(name: str, by: Sequence[str], part: Sequence[Distinguished]) -> list[str]:
    """Return the caveats of a verdict on the variants of one part, which are compared with each other."""
    keys = differing_keys([variant.settings for variant in part])
    others = [key for key in keys if key not in by]
    if len(part) > 1 and len(others) == len(keys):
        return [f"--by {name}: it is the same in all of these runs"]
    if others:
        return [f"--by {name}: these differ in {', '.join(others)} as well"]
    if len(part) > 1 and all(key in NAMING for key in keys):
        return [
            f"--by {name}: nothing else that runs keep of themselves differs; a name that was given after a look at "
            "the numbers makes the difference itself"
        ]
    return []


def by_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the name of each key in a sentence: its last word if that is unique."""
    return short_names(keys)


def lead(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> str:
    """The beginning of a sentence on two variants: `at commit a against commit b: `; empty where nothing differs.

    Args:
        one: what the first variant says of each key of `--by`, by the name of the key; likewise `other`.
    """
    here, there = [], []
    for mine, theirs in zip(one, other, strict=True):
        if mine != theirs:
            here.append(" ".join(mine))
            there.append(" ".join(theirs))
    return f"at {', '.join(here)} against {', '.join(there)}: " if here else ""


def codes(entry: Entry) -> list[str]:
    """Each code that a run was trained with: its commit, `+` and the hash of what differed from it."""
    if entry.summary.code:
        return list(map(str, entry.summary.code))
    return list(filter(None, [entry.summary.commit]))  # of an older run


def short_commit(code: str) -> str:
    """A code in as many digits as git shows: `1a2b3c4`, or `1a2b3c4+9f8e7d6c` of a tree with changes."""
    commit, plus, changes = code.partition("+")
    if commit.endswith("?"):  # git could not tell whether files differ
        return f"{commit[:COMMIT_DIGITS]}?"
    return f"{commit[:COMMIT_DIGITS]}{plus}{changes}"


def _resolved(entries: Sequence[Entry], word: str) -> str:
    """The whole key; UserError where there is none, or where no run says anything of it."""
    if word in (COMMIT, LABEL, TAG):
        if {by_value(entry, word) for entry in entries} == {UNSAID}:
            raise UserError(f"--by {word}: no run says {_missing(word)}")
        return word
    known: dict[str, None] = {}
    for entry in entries:
        known |= dict.fromkeys(entry.settings)
        known |= dict.fromkeys(path for path, _ in flat(entry.config))
    if word in known:
        return word
    ending = [key for key in known if key.endswith(f".{word}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise UserError(f"--by {word}: several keys end so; say which: {first_few(ending)}")
    raise UserError(f"--by {word}: no run has {word}{did_you_mean(word, [COMMIT, LABEL, TAG, *known])}")


def _missing(word: str) -> str:
    if word == COMMIT:
        return "at which commit it ran; train in a git checkout"
    return f"its {word}; train with {NAMING[word]}"


def _of_user(entry: Entry, name: str) -> Any:
    """Return the user's value under `run` in the config."""
    node = entry.config.get("run")
    return node.get(name) if isinstance(node, dict) else None


def _config_value(entry: Entry, key: str) -> Any:
    return entry.settings[key] if key in entry.settings else dict(flat(entry.config)).get(key, UNSAID)
