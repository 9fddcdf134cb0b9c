"""How much of a split stands in other text too: in train, or in what a run was trained on that another began with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Literal, NamedTuple

from seqtrain.data.cache import Store
from seqtrain.data.preprocess import Rows
from seqtrain.data.sketch import MAX_CACHED, Sample, Sketch

Kind = Literal["documents", "short documents", "text"]
LIMITS: dict[Kind, float] = {"documents": 0.1, "short documents": 0.5, "text": 0.1}
"""From which share on figures are those of text learnt by heart; short documents recur by themselves."""
MIN_ASKED = 30  # hashes of a sample: of fewer, chance decides
MAX_CACHED_BYTES = 8 * (1 + 3 * (2 + MAX_CACHED))


class Leak(NamedTuple):
    """How much of a text stands in another one."""

    share: float
    kind: Kind  # of what it is the share
    asked: int  # how many were looked for


def sketches(rows: Rows, *, lines: bool = False, cache: Path | None = None) -> list[Sketch]:
    """The sketch of each field of a split, from the cache if it is there; `lines` as for `Sketch.of`."""
    return [_field_sketch(rows, field, lines, Store(cache)) for field in rows.columns]


def trained_text(rows: Rows, *, cache: Path | None = None) -> Sketch:
    """The sketch of a whole split, in which others are looked for."""
    return reduce(Sketch.joined, sketches(rows, lines=True, cache=cache))


def find_leak(fields: Sequence[Sketch], known: Sketch, choose: Callable[..., Leak] = min) -> Leak | None:
    """How much of a split stands in the text of `known`; None where there is too little to tell.

    Args:
        fields: The sketch of each field of the split.
        known: Of the text in which it is looked for.
        choose: `min`: a pair counts where both of its sides stand there; `max`: where one of them does.
    """
    found = list(filter(None, (_field_leak(sketch, known) for sketch in fields)))
    return choose(found, key=_gravity, default=None)


def _field_sketch(rows: Rows, field: str, lines: bool, store: Store) -> Sketch:
    def write(folder: Path) -> None:
        texts = (row[field] for row in rows.read())
        Sketch.of(texts, lines=lines).save(folder / "sketch")

    key = f"{rows.columns[field].hash}{' lines' * lines}"
    return store.entry("sketches", key, write, lambda folder: Sketch.load(folder / "sketch", MAX_CACHED_BYTES))


def _field_leak(asked: Sketch, known: Sketch) -> Leak | None:
    """The gravest share of a field."""
    are_short = asked.short.size > asked.documents.size
    look = partial(_look, known=known)
    leaks = [look("documents", asked.documents), look("text", asked.stretches)]
    if are_short:  # else they are headings and the like
        leaks.append(look("short documents", asked.short))
    return max(filter(None, leaks), key=_gravity, default=None)


def _look(kind: Kind, asked: Sample, *, known: Sketch) -> Leak | None:
    """Looks for the hashes of a sample among those of the same kind."""
    samples: dict[Kind, Sample] = {
        "documents": known.documents,
        "short documents": known.short,
        "text": known.stretches,
    }
    count, found = asked.found_in(samples[kind])
    # Of fewer documents than that the share is exact where all of them were asked.
    if count < MIN_ASKED and (count == 0 or count < asked.size):
        return None
    return Leak(found / count, kind, count)


def _gravity(leak: Leak) -> tuple[float, int]:
    """The share, in units of what is too much; of equal ones that of which more is known counts."""
    return leak.share / LIMITS[leak.kind], leak.asked
