"""Runs that `--where` hides although runs like them count: a choice of seeds can show anything."""

from __future__ import annotations

from collections.abc import Sequence

from seqtrain.compare.entries import Entry
from seqtrain.compare.guard import Group
from seqtrain.compare.settings import deciding


def hidden_by(entries: Sequence[Entry], kept: Sequence[Entry]) -> list[Entry]:
    """The finished runs that a choice left out.

    Args:
        entries: all runs that were read.
        kept: those of them that were chosen.
    """
    chosen = set(map(id, kept))
    return [entry for entry in entries if entry.finished and id(entry) not in chosen]


def hidden_notes(group: Group, hidden: Sequence[Entry]) -> list[str]:
    """A sentence where runs of the same variants were left out; nothing where only other variants were.

    Args:
        group: runs that were kept.
        hidden: as `hidden_by` gives them.
    """
    # Most comparisons hide nothing, and need not ask what each run is.
    if not hidden:
        return []
    variants = set(map(_alike, group.entries))
    count = sum(_alike(entry) in variants for entry in hidden)
    if not count:
        return []
    runs = "1 finished run" if count == 1 else f"{count} finished runs"
    return [
        f"--where hides {runs} of the same variants: seeds that were chosen after a look at their numbers show nothing"
    ]


def _alike(entry: Entry) -> str:
    """Return the identity that runs share if only their seed differs: their settings and the text they read."""
    return repr((sorted(map(repr, deciding(entry).items())), sorted(map(repr, entry.summary.hashes.items()))))
