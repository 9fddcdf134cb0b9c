"""Search for leaks: the share of a split that stands in train, or in the training text of a parent run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path

from seqtrain.data.cache import Store
from seqtrain.data.leak_kinds import LIMITS, Kind, Leak
from seqtrain.data.preprocess import Rows
from seqtrain.data.sketch import MAX_CACHED, Sample, Sketch

MIN_ASKED = 30  # hashes of a sample: of fewer, chance decides
MAX_CACHED_BYTES = 8 * (1 + 3 * (2 + MAX_CACHED))


def sketches(rows: Rows, *, lines: bool = False, cache: Path | None = None) -> list[Sketch]:
    """Return the sketch of each field of a split, from the cache if it is there; `lines` is that of `Sketch.of`."""
    return [_field_sketch(rows, field, lines, Store(cache)) for field in rows.columns]


def trained_text(rows: Rows, *, cache: Path | None = None) -> Sketch:
    """Return the sketch of a whole split, in which others are searched for."""
    return reduce(Sketch.joined, sketches(rows, lines=True, cache=cache))


def find_leak(fields: Sequence[Sketch], known: Sketch, choose: Callable[..., Leak] = min) -> Leak | None:
    """Return the share of a split that stands in the text of `known`; None if there is too little to tell.

    Args:
        fields: Sketch of each field of the split.
        known: Sketch of the text that is searched.
        choose: `min`: a pair counts if both of its sides stand there; `max`: if one of them does.
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
    """Return the gravest leak of a field."""
    are_short = asked.short.size > asked.documents.size
    look = partial(_look, known=known)
    leaks = [look("documents", asked.documents), look("text", asked.stretches)]
    if are_short:  # else they are headings and the like
        leaks.append(look("short documents", asked.short))
    return max(filter(None, leaks), key=_gravity, default=None)


def _look(kind: Kind, asked: Sample, *, known: Sketch) -> Leak | None:
    """Search for the hashes of a sample among those of the same kind."""
    samples: dict[Kind, Sample] = {
        "documents": known.documents,
        "short documents": known.short,
        "text": known.stretches,
    }
    count, found = asked.found_in(samples[kind])
    # With fewer documents, the share is exact only if all of them were asked.
    if count < MIN_ASKED and (count == 0 or count < asked.size):
        return None
    return Leak(found / count, kind, count)


def _gravity(leak: Leak) -> tuple[float, int]:
    """Return the sort key of a leak: its share relative to the limit, then the number of hashes asked."""
    return leak.share / LIMITS[leak.kind], leak.asked
