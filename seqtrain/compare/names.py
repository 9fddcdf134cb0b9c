"""What variants are called: the model, and the settings in which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from seqtrain.compare.entries import SETTING_ORDER, Entry, short_names
from seqtrain.compare.filters import written
from seqtrain.compare.parents import SEVERAL
from seqtrain.compare.settings import EXTENDED, differing_keys

MOST_SETTINGS = 4  # in a name, unless more are needed to tell it from others
MOST_VALUES = 4  # of one setting, in the line below the names
HASH_DIGITS = 8

Settings = Mapping[str, Any]


def variant_names(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str] = ()) -> list[str]:
    """The model and what differs, such as `lstm dim=64 lr=0.003`; of many settings the first, `and 4 more`.

    Args:
        entries: a run of each variant.
        settings: what makes each variant, as `settings.deciding` gives it, with the values of `by`.
        by: keys that were asked for: they stand in every name.
    """
    shown, hidden = _chosen(entries, settings, by)
    values = Displayed(entries, settings)
    words = short_names(shown)
    names = []
    for place, entry in enumerate(entries):
        parts = [entry.model]
        for key in shown:
            if key in settings[place] and key != "model":
                parts.append(f"{_plain(key, words[key])}={values.of(place, key)}")
        more = sum(key in settings[place] for key in hidden)
        if more:
            parts.append(f"and {more} more")
        names.append(" ".join(parts))
    counts = Counter(names)
    for place, entry in enumerate(entries):
        if counts[names[place]] > 1:  # alike but in settings that a short name rounds off
            names[place] += f" {entry.name}"
    return names


def differences_line(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str] = ()) -> str:
    """`they differ in: ...`, with every setting and its values; empty where the names hold all of them."""
    _, hidden = _chosen(entries, settings, by)
    if not hidden:
        return ""
    values = Displayed(entries, settings)
    words = []
    for key in _differing(settings):
        found = values.all(key)
        text = ", ".join(found[:MOST_VALUES])
        if len(found) > MOST_VALUES:
            text += f" and {len(found) - MOST_VALUES} more"
        words.append(f"{_plain(key, key)} ({text})")
    return f"they differ in: {', '.join(words)}"


def brief(value: Any) -> str:
    """A value as names have it: of a number as many digits as a person reads."""
    return f"{value:.4g}" if isinstance(value, float) else written(value)


class Displayed:
    """The values of settings as they stand in a name."""

    def __init__(self, entries: Sequence[Entry], settings: Sequence[Settings]) -> None:
        """`settings` are those of `entries`, one by one."""
        self.settings = settings
        self.origins = _origins(entries, settings)

    def of(self, place: int, key: str) -> str:
        """A setting of one of the entries: of a number as many digits as a person reads."""
        value = self.settings[place][key]
        if key == "init_from" and place in self.origins:
            return self.origins[place]
        if key == EXTENDED:
            return " and ".join(map(_limits, value))
        return brief(value)

    def all(self, key: str) -> list[str]:
        """The values of a setting among all entries that have it, each once."""
        found: dict[str, None] = {}
        for place, settings in enumerate(self.settings):
            if key in settings:
                found[self.of(place, key)] = None
        return list(found)


def _differing(settings: Sequence[Settings]) -> list[str]:
    """All keys that differ, the model and its options first."""
    keys = sorted(differing_keys(settings), key=lambda key: not key.startswith("model."))
    return sorted(keys, key=lambda key: SETTING_ORDER.get(key, 1))


def _chosen(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str]) -> tuple[list[str], list[str]]:
    """The keys that differ and stand in a name, and those that do not."""
    keys = [key for key in _differing(settings) if key != "model" and key not in by]
    swept = set()
    for entry in entries:
        if entry.sweep:  # then its label is made of `word=value`
            swept.update(word.partition("=")[0] for word in entry.label.split())
    chosen = [*by, *filter(swept.__contains__, keys)]
    for key in keys:
        if _count_distinct(settings, ["model", *chosen, key]) > _count_distinct(settings, ["model", *chosen]):
            chosen.append(key)
    rest = [key for key in keys if key not in chosen]
    room = max(MOST_SETTINGS - len(chosen), 0)
    return chosen + rest[:room], rest[room:]


def _count_distinct(settings: Sequence[Settings], keys: Sequence[str]) -> int:
    """How many different values these settings take together."""
    return len({repr([each.get(key, UNSET) for key in keys]) for each in settings})


UNSET = "unset"  # like no value's repr, which would have quotes of its own


def _origins(entries: Sequence[Entry], settings: Sequence[Settings]) -> dict[int, str]:
    """The run that each began with, by as little of its path as tells apart whose weights they are."""
    origins: dict[int, tuple[tuple[str, ...], str]] = {}  # paths and hash
    for place, entry in enumerate(entries):
        value = settings[place].get("init_from")
        if value is not None and value != SEVERAL:
            paths = entry.settings["init_from"]
            if not isinstance(paths, list):  # of one run; of two, one for each direction
                paths = [paths]
            origins[place] = (tuple(map(str, paths)), str(value)[:HASH_DIGITS])
    names: dict[int, str] = {}
    spellings: list[Callable[[tuple[str, ...], str], str]] = [_folder_name, _path, _path_and_hash]
    for spelling in spellings:
        names = {place: spelling(*origin) for place, origin in origins.items()}
        hashes = {(names[place], weights) for place, (_, weights) in origins.items()}
        if len(set(names.values())) == len(hashes):  # no two that began with other weights are called the same
            break
    return names


def _folder_name(paths: tuple[str, ...], _: str) -> str:
    return "+".join(PurePath(path).name for path in paths)


def _path(paths: tuple[str, ...], _: str) -> str:
    return "+".join(paths)


def _path_and_hash(paths: tuple[str, ...], weights: str) -> str:
    return f"{_path(paths, weights)}@{weights}"


def _limits(change: str) -> str:
    """How a run was extended, in short: `100->200` of `trainer.max_steps: 100 -> 200 at step 100`."""
    return change.partition(": ")[2].partition(" at step ")[0].replace(" ", "") or change


def _plain(key: str, word: str) -> str:
    """The word that stands for a key: of one that ends in Hydra's own word, what stands before that."""
    return key.removesuffix("._target_") if key.endswith("._target_") else word
