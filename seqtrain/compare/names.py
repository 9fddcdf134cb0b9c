"""Names of variants: the model, the options that differ, and the keys of `--by`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any

from seqtrain.compare.entries import SETTING_ORDER, Entry, short_names
from seqtrain.compare.filters import written
from seqtrain.compare.settings import EXTENDED, differing_keys
from seqtrain.config.nodes import flat
from seqtrain.errors import UserError, did_you_mean, first_few

MOST_VALUES = 4  # values of one setting that the line below the names shows
HASH_DIGITS = 8
COMMIT_DIGITS = 7  # as git itself shows a commit
COMMIT, LABEL, TAG = "commit", "label", "tag"  # keys of `--by` beside those of the config
MISSING = {
    COMMIT: "its commit; train in a git checkout",
    LABEL: "its label; train with run.label=NAME",
    TAG: "its tag; train with run.tags=[NAME]",
}
UNSAID = "none"  # shown if a run has not recorded the value
UNSET = "unset"  # differs from the repr of every string, which has quotes
ORIGIN = "init_from"
SEVERAL = "any"  # shown as the parent if the runs of a variant began with the weights of several runs

Settings = Mapping[str, Any]


def variant_names(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str] = ()) -> list[str]:
    """Return a unique name for each variant: its model, and the typed options that differ, such as `lstm dim=64`.

    Args:
        entries: a run of each variant.
        settings: the settings of each variant, from `settings.deciding`, with the values of `by`.
        by: keys of `--by`, which are in every name.
    """
    shown = _shown(entries, settings, by)
    origins = _origins(entries, settings)
    words = short_names(list(dict.fromkeys(chain.from_iterable(shown))))
    names = []
    for place, entry in enumerate(entries):
        options = []
        for key in shown[place]:
            options.append(f"{_plain(key, words[key])}={_value(key, settings[place], origins.get(place))}")
        names.append(" ".join([entry.model, *options]))
    counts = Counter(names)
    for place, entry in enumerate(entries):
        if counts[names[place]] > 1:  # they differ only in digits that a name rounds off
            names[place] += f" {entry.name}"
    return names


def differences_line(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str] = ()) -> str:
    """Return `other settings that differ: ...` with values; empty if the names show all of them."""
    shown = _shown(entries, settings, by)
    origins = _origins(entries, settings)
    words = []
    for key in _differing(settings, by):
        if all(key in names for names, own in zip(shown, settings, strict=True) if key in own):
            continue
        values = [_value(key, own, origins.get(place)) for place, own in enumerate(settings) if key in own]
        words.append(f"{_plain(key, key)} ({first_few(dict.fromkeys(values), MOST_VALUES)})")
    return f"other settings that differ: {', '.join(words)}" if words else ""


def brief(value: Any) -> str:
    """Return a value as it is shown in names; floats have four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else written(value)


def resolved_by(entries: Sequence[Entry], words: Sequence[str]) -> list[str]:
    """Return the full keys for the arguments of `--by`: `commit`, `label`, `tag`, or keys of the config.

    Args:
        entries: all runs.
        words: each may contain several keys, separated by commas. The last part of a key is enough if it is unique.

    Raises:
        UserError: no run has such a key, or several keys end in it.
    """
    return list(dict.fromkeys(_resolved(entries, word.strip()) for word in ",".join(words).split(",") if words))


def by_value(entry: Entry, key: str) -> str:
    """Return a run's value of a `--by` key, as it is shown in a name."""
    if key == COMMIT:
        return " and ".join(map(short_commit, codes(entry))) or UNSAID
    if key == LABEL:
        return written(_of_user(entry, "label") or UNSAID)
    if key == TAG:
        tags = _of_user(entry, "tags")
        return "+".join(sorted(map(str, tags))) if isinstance(tags, list) and tags else UNSAID
    return written(entry.settings[key] if key in entry.settings else dict(flat(entry.config)).get(key, UNSAID))


def codes(entry: Entry) -> list[str]:
    """Return each code version that a run was trained with: its commit, `+` and the hash of local changes."""
    return list(map(str, entry.summary.code or filter(None, [entry.summary.commit])))


def short_commit(code: str) -> str:
    """Shorten a code version to git's length: `1a2b3c4`, or `1a2b3c4+9f8e7d6c` with local changes."""
    commit, plus, changes = code.partition("+")
    if commit.endswith("?"):  # git could not tell whether files differ
        return f"{commit[:COMMIT_DIGITS]}?"
    return f"{commit[:COMMIT_DIGITS]}{plus}{changes}"


def _resolved(entries: Sequence[Entry], word: str) -> str:
    """Return the full key for an argument of `--by`."""
    if word in MISSING:
        if {by_value(entry, word) for entry in entries} == {UNSAID}:
            raise UserError(f"--by {word}: no run has recorded {MISSING[word]}")
        return word
    known: dict[str, None] = {}
    for entry in entries:
        known |= dict.fromkeys((*entry.settings, *(path for path, _ in flat(entry.config))))
    if word in known:
        return word
    # A YAML's recommendations are not options: `lr` means the optimizer's.
    ending = [key for key in known if key.endswith(f".{word}") and "._recommend_." not in key]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise UserError(f"--by {word}: several keys end in it; choose one: {first_few(ending)}")
    raise UserError(f"--by {word}: no run has {word}{did_you_mean(word, [*MISSING, *known])}")


def _of_user(entry: Entry, name: str) -> Any:
    """Return the user's value under `run` in the config."""
    node = entry.config.get("run")
    return node.get(name) if isinstance(node, dict) else None


def _value(key: str, settings: Settings, origin: str | None) -> str:
    """Return a setting as it is shown in a name."""
    if key == ORIGIN and origin is not None:
        return origin
    if key == EXTENDED:
        return " and ".join(map(_limits, settings[key]))
    return brief(settings[key])


def _differing(settings: Sequence[Settings], by: Sequence[str]) -> list[str]:
    """Return the keys that differ, without the model and `by`; the model's options come first."""
    keys = [key for key in differing_keys(settings) if key not in ("model", "variant", *by)]
    return sorted(keys, key=lambda key: (SETTING_ORDER.get(key, 1), not key.startswith("model.")))


def _shown(entries: Sequence[Entry], settings: Sequence[Settings], by: Sequence[str]) -> list[list[str]]:
    """Return the keys for each name: those of `by`, those typed for its model, and others that make names unique."""
    keys = _differing(settings, by)
    typed: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for word in map(str, entry.summary.command):
            typed[entry.model].add(word.lstrip("+~").partition("=")[0])
    shown = []
    for entry, own in zip(entries, settings, strict=True):
        # Conditions and extensions are not in the config, so they are always shown.
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
    """Return True if the user set the key or a node that contains it; `model=gpt` sets no option of the model."""
    return key.removesuffix("._target_") in typed or any("." in node and key.startswith(f"{node}.") for node in typed)


def _origins(entries: Sequence[Entry], settings: Sequence[Settings]) -> dict[int, str]:
    """Return the parent of each run that has one: its folder or, if that is not unique, its path and hash."""
    folders, paths, hashes = {}, {}, {}
    for place, entry in enumerate(entries):
        value = settings[place].get(ORIGIN)
        if value is None or value == SEVERAL:
            continue
        known = entry.settings[ORIGIN]
        parents = list(map(str, known if isinstance(known, list) else [known]))  # two, one for each direction
        hashes[place] = str(value)[:HASH_DIGITS]
        folders[place] = "+".join(PurePath(path).name for path in parents)
        paths[place] = f"{'+'.join(parents)}@{hashes[place]}"
    is_unique = len(set(folders.values())) == len({(folders[place], hashes[place]) for place in folders})
    return folders if is_unique else paths


def _limits(change: str) -> str:
    """Return the changed limits of an extended run: `100->200` for `trainer.max_steps: 100 -> 200 at step 100`."""
    return change.partition(": ")[2].partition(" at step ")[0].replace(" ", "") or change


def _plain(key: str, word: str) -> str:
    """Return the short name of a key; for a key that ends in `_target_`, the key before it."""
    return key.removesuffix("._target_") if key.endswith("._target_") else word
