"""Hints for a faulty value: the key that was meant, and the file that set a value the user did not type."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from seqtrain.config.conf_files import ConfFiles
from seqtrain.config.groups import ENTRIES, GLOBAL, GROUPS, RESERVED
from seqtrain.config.nodes import Unresolved, at, leaves
from seqtrain.errors import did_you_mean

MAX_SUGGESTIONS = 3  # more of them no longer fit a line


@dataclass(frozen=True)
class Hints:
    """Ends of error messages about one configuration."""

    values: dict[str, Any]  # the configuration as plain containers, unresolved
    choices: dict[str, str]
    files: ConfFiles
    given: Collection[str]  # keys that the user typed
    added: Collection[str]  # those of them that stand in no file

    def meant(self, path: str, leaf: str, known: Collection[str]) -> str:
        """Return another option of the group that has the key, the same key elsewhere, or a key with similar spelling.

        Args:
            path: the unknown key.
            leaf: the value below it that is told.
            known: keys that may stand beside it.
        """
        group, _, key = path.partition(".")
        others = [f"{group}={option}" for option in self._alternatives(group) if self._offers(group, option, key)]
        if others:
            return f"; {' or '.join(others[:MAX_SUGGESTIONS])} has it"
        elsewhere = self._same_name(leaf)
        if elsewhere:
            return f"; did you mean {' or '.join(elsewhere[:MAX_SUGGESTIONS])}?"
        return did_you_mean(path.rpartition(".")[2], known)

    def set_in(self, path: str) -> str:
        """Return the file that set a value that the user did not type."""
        for key in self.given:
            # Who types a map has set the values below it, and who types a value has changed the map above.
            if f"{path}.".startswith(f"{key}.") or f"{key}.".startswith(f"{path}."):
                return ""
        group, _, key = path.partition(".")
        value = at(self.values, path)
        # In the order in which they win: a file of a global group overrides what the group's own file says.
        for name, inside in [*((name, path) for name in reversed(GLOBAL)), (group, key)]:
            for option in filter(None, self.choices.get(name, "").split(",")):
                if at(self.files.content(name, option), inside) == value:
                    return f" (set in {name}/{option}.yaml)"
        return ""

    def _same_name(self, leaf: str) -> list[str]:
        """Return known keys of other groups that end like an unknown one."""
        word = f".{leaf.rpartition('.')[2]}"
        return [name for name, _ in leaves(self.values, "") if name.endswith(word) and self._is_known(name, leaf)]

    def _is_known(self, path: str, unknown: str) -> bool:
        keys = path.split(".")
        if keys[0] not in (*GROUPS, *ENTRIES, "trainer"):
            return False
        # What was added on the command line may be as wrong as the key that is explained.
        return path != unknown and path not in self.added and not any(map(RESERVED.match, keys))

    def _alternatives(self, group: str) -> list[str]:
        return self.files.options(group) if group in self.choices else []

    def _offers(self, group: str, option: str, key: str) -> bool:
        value = at(self.files.content(group, option), key)
        # An entry that is null is switched off: its file only makes room for it.
        return value is not Unresolved and not (group in ENTRIES and value is None)
