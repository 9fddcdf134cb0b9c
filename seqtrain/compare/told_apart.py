"""Runs of equal settings that were measured under different conditions: they are not seeds of one variant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from seqtrain.compare.conditions import UNKNOWN
from seqtrain.compare.entries import Entry
from seqtrain.compare.filters import written
from seqtrain.compare.guard import Group
from seqtrain.compare.settings import is_path, last_word

PREFIX = "condition."  # before the name of a condition that stands among settings
HASH_DIGITS = 8


def told_apart(group: Group, folded: Iterable[Sequence[Entry]]) -> dict[int, dict[str, str]]:
    """The conditions in which runs of the same settings differ, as settings of each run, by the id of its entry.

    Two training texts at two paths, say, are no setting: without this, `--across train` would fold runs on them like
    seeds.

    Args:
        group: has the conditions of its runs.
        folded: the runs of equal settings, together.
    """
    differing: dict[str, None] = {}
    for entries in folded:
        for name in _names(group):
            values = {repr(value) for value in _values(group, entries, name)}
            if len(values) > 1:
                differing[name] = None
    found: dict[int, dict[str, str]] = {}
    for entry in group.entries:
        own = {}
        for name in differing:
            for value in _values(group, [entry], name):
                own[PREFIX + name] = _label(value, entry, group, name)
        found[id(entry)] = own
    return found


def _names(group: Group) -> list[str]:
    first = group.measured.get(id(group.entries[0]))
    return list(first.values) if first else []


def _values(group: Group, entries: Sequence[Entry], name: str) -> list[Any]:
    """Return the values of a condition in these runs, without unknown ones."""
    values = []
    for entry in entries:
        value = group.measured[id(entry)].values[name]
        if value is not UNKNOWN:
            values.append(value)
    return values


def _label(value: Any, entry: Entry, group: Group, name: str) -> str:
    """Return a condition as part of a variant's name: the file of a text if its name is unique, else a short hash."""
    paths = _paths(entry)
    of_others = set()
    for other in group.entries:
        if _values(group, [other], name) != [value]:
            of_others.update(_paths(other))
    if name in ("train", "validation", "test") and paths and not of_others.intersection(paths):
        return "+".join(paths)
    if isinstance(value, dict):
        return " ".join(f"{last_word(key)}={_short(inner)}" for key, inner in value.items())
    return _short(value)


def _paths(entry: Entry) -> list[str]:
    """The names of the files that data was read from."""
    names = []
    for key, value in entry.settings.items():
        if is_path(key) and isinstance(value, str):
            names.append(PurePath(value).name)
    return names


def _short(value: Any) -> str:
    return written(value)[:HASH_DIGITS]
