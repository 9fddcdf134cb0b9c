"""Names of variants: the model, and the options in which they differ, as the user typed them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any

from seqtrain.compare.entries import SETTING_ORDER, Entry, short_names
from seqtrain.compare.filters import written
from seqtrain.compare.parents import SEVERAL
from seqtrain.compare.settings import EXTENDED, differing_keys
from seqtrain.errors import first_few

MOST_VALUES = 4  # of one setting, in the line below the names
HASH_DIGITS = 8

Settings = Mapping[str, Any]


def variant_names(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str] = ()) -> list[str]:
    """Return a unique name for each variant: its model, and the typed options that differ, such as `lstm dim=64`.

    Args:
        entries: a run of each variant.
        settings: what makes each variant, as `settings.deciding` gives it, with the values of `by`.
        by: keys that were asked for: they stand in every name.
    """
    shown = _shown(entries, settings, by)
    values = Displayed(entries, settings)
    words = short_names(list(dict.fromkeys(chain.from_iterable(shown))))
    names = []
    for place, entry in enumerate(entries):
        options = [f"{_plain(key, words[key])}={values.of(place, key)}" for key in shown[place]]
        names.append(" ".join([entry.model, *options]))
    counts = Counter(names)
    for place, entry in enumerate(entries):
        if counts[names[place]] > 1:  # alike but in digits that a name rounds off
            names[place] += f" {entry.name}"
    return names


def differences_line(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str] = ()) -> str:
    """Return `other settings that differ: ...` with values; empty where the names hold all of them."""
    shown = _shown(entries, settings, by)
    values = Displayed(entries, settings)
    words = []
    for key in _differing(settings, by):
        if all(key in names for names, own in zip(shown, settings, strict=True) if key in own):
            continue
        found = values.all(key)
        words.append(f"{_plain(key, key)} ({first_few(found, MOST_VALUES)})")
    return f"other settings that differ: {', '.join(words)}" if words else ""


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


def _differing(settings: Sequence[Settings], by: Sequence[str]) -> list[str]:
    """Return the keys that differ beside the model and `by`, the options of the model first."""
    keys = [key for key in differing_keys(settings) if key != "model" and key not in by]
    return sorted(keys, key=lambda key: (SETTING_ORDER.get(key, 1), not key.startswith("model.")))


def _shown(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str]) -> list[list[str]]:
    """Return the keys in each name: those of `by`, what was typed for its model, and what else makes names unique."""
    keys = _differing(settings, by)
    typed: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for word in map(str, entry.summary.command):
            typed[entry.model].add(word.lstrip("+~").partition("=")[0])
    shown = []
    for entry, own in zip(entries, settings, strict=True):
        # Conditions and extensions are in no config, so they follow from no other option.
        shown.append(list(filter(own.__contains__, by)))
        for key in keys:
            if key in own and (key not in entry.settings or _is_typed(key, typed[entry.model])):
                shown[-1].append(key)
    for key in keys:
        alike: dict[str, list[int]] = defaultdict(list)
        for place, entry in enumerate(entries):
            label = [entry.model, *shown[place], *map(settings[place].get, shown[place])]
            alike[repr(label)].append(place)
        for places in alike.values():
            if len({repr(settings[place].get(key, UNSET)) for place in places}) > 1:
                for place in places:
                    if key in settings[place]:
                        shown[place].append(key)
    return shown


def _is_typed(key: str, typed: set[str]) -> bool:
    """Return True if the key, or a node that holds it, was set; `model=gpt` sets none of the model's options."""
    return key.removesuffix("._target_") in typed or any("." in node and key.startswith(f"{node}.") for node in typed)


UNSET = "unset"  # like no value's repr, which would have quotes of its own


def _origins(entries: Sequence[Entry], settings: Sequence[Settings]) -> dict[int, str]:
    """Return the parent run of each run, by the shortest part of its path that is unique."""
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
    """Return the changed limits of an extended run: `100->200` for `trainer.max_steps: 100 -> 200 at step 100`."""
    return change.partition(": ")[2].partition(" at step ")[0].replace(" ", "") or change


def _plain(key: str, word: str) -> str:
    """Return the word that stands for a key; for a key that ends in Hydra's own word, the word before it."""
    return key.removesuffix("._target_") if key.endswith("._target_") else word
