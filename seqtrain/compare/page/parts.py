"""Contents of a page in named parts: a served page fetches only the parts that have changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from seqtrain.compare.page.content import safe_json

RUNS, GROUPS = "runs", "groups"  # entries of `known` that are parted further


@dataclass(frozen=True)
class PageContent:
    """All contents of a page.

    Attributes:
        known: what it always has at hand: title, groups, runs and so on.
        blocks: values of each run that are unpacked when looked at, by the block's name and in the order of the runs.
    """

    known: dict[str, Any]
    blocks: dict[str, list[Any]]

    @property
    def runs(self) -> list[str]:
        """The names of the runs, in their order; a name stands for one run."""
        return [run["name"] for run in self.known[RUNS]]

    def named(self) -> dict[tuple[str, ...], Any]:
        """Each part by its name: ("known", key), ("group", number), ("run", name) or ("block", block, name)."""
        found: dict[tuple[str, ...], Any] = {}
        for key, value in self.known.items():
            if key not in (RUNS, GROUPS):
                found["known", key] = value
        for number, group in enumerate(self.known[GROUPS]):
            found["group", str(number)] = group
        for place, run in enumerate(self.known[RUNS]):
            # The place of a run is said by the order; it changes where another run comes before it.
            found["run", run["name"]] = {key: value for key, value in run.items() if key != "index"}
            for block, values in self.blocks.items():
                found["block", block, run["name"]] = values[place]
        return found


@dataclass
class Changes:
    """The count of updates at which each part of a page last changed; gives the changes since any earlier mark."""

    marks: dict[str, int] = field(default_factory=dict)  # the number of the state that a mark stands for
    count: int = 0  # of states so far
    _parts: PageContent | None = None
    _digests: dict[tuple[str, ...], bytes] = field(default_factory=dict)
    _since: dict[tuple[str, ...], int] = field(default_factory=dict)

    def update(self, parts: PageContent, mark: str) -> None:
        """Store the newest state of the page under this mark."""
        self.count += 1
        self.marks[mark] = self.count  # a state may come again: then its number is the newer one
        digests = {}
        for name, value in parts.named().items():
            digests[name] = hashlib.blake2b(safe_json(value).encode(), digest_size=12).digest()
            if digests[name] != self._digests.get(name):
                self._since[name] = self.count
        self._parts, self._digests = parts, digests

    def since(self, mark: str) -> dict[str, Any]:
        """Return the parts that have changed since a mark; all parts if the mark is unknown.

        Returns:
            `known`, `groups` (by number), `runs` (by name) and `blocks` (by block, then by name) of what has changed;
            `order`, the names of all runs, and `group_count`.
        """
        assert self._parts is not None
        seen = self.marks.get(mark, 0)
        told: dict[str, Any] = {"whole": not seen, "known": {}, "groups": {}, "runs": {}, "blocks": {}}
        for name, value in self._parts.named().items():
            if self._since[name] <= seen:
                continue
            if name[0] == "block":
                told["blocks"].setdefault(name[1], {})[name[2]] = value
            else:
                told[{"known": "known", "group": GROUPS, "run": RUNS}[name[0]]][name[1]] = value
        return told | {"order": self._parts.runs, "group_count": len(self._parts.known[GROUPS])}
