"""`--across init_from`: runs that started from the weights of several runs, such as one per seed, are one variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from seqtrain.compare.entries import Entry
from seqtrain.errors import UserError

ORIGIN = "init_from"
SEVERAL = "any"  # what stands in a name instead of whose weights a variant's runs began with


class Counted(Protocol):
    """The part of a variant that this module needs."""

    @property
    def counted(self) -> tuple[Entry, ...]:
        """Runs whose values count."""
        ...


def without_origin(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the run whose weights it started from; that it started from weights stays."""
    found = dict(settings)
    if found.get(ORIGIN) is not None:
        found[ORIGIN] = SEVERAL
    return found


def has_several(variant: Counted) -> bool:
    """Return True if the runs of a variant started from the weights of several runs."""
    return len({entry.summary.parent or repr(entry.settings.get(ORIGIN)) for entry in variant.counted}) > 1


def folded_sentence(ranked: Sequence[Counted]) -> str:
    """Return the first line of a verdict on variants whose runs started from different weights; empty if none did."""
    if not any(map(has_several, ranked)):
        return ""
    return (
        "across init_from, as asked for: runs that began with the weights of several runs are one variant, so its "
        "spread is that of those runs as well"
    )


def check_folds(ranked: Sequence[Sequence[Counted]]) -> None:
    """Raise UserError if `--across init_from` has folded nothing in any group."""
    if not any(map(folded_sentence, ranked)):
        raise UserError("--across init_from: keeps no runs apart here; leave it out")
