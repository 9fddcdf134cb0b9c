"""Series with labels: the interface of their sources, and the cut of whole series into splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.sources.base import SPLITS, LabelKind, Row, Source, Split, shuffled
from seqtrain.data.values.series import Series, SeriesSplit
from seqtrain.errors import UserError


@runtime_checkable
class HoldsLabels(Protocol):
    """A source of series with labels; a series is in one split as a whole."""

    def labels(self, split: Split, kind: LabelKind) -> list[str]:
        """Return the label of each series of a split: a name, a number, or a name for each row with blanks between."""
        ...

    def series_of(self, path: Path, columns: Sequence[str]) -> Series:
        """Return the series of another file of the same format, which may lack labels."""
        ...


@runtime_checkable
class HoldsTexts(Protocol):
    """A source of series with a text each."""

    def written(self, split: Split) -> Iterator[Row]:
        """Return the rows of a split with their `target` alone."""
        ...


def rows_of(source: Source, split: Split) -> Iterator[Row]:
    """Return the rows of a split, with all of their fields that are text."""
    return source.written(split) if isinstance(source, HoldsTexts) else source.rows(split)


def numbered_series(values: Float[np.ndarray, "T C"], lengths: Sequence[int], channel: str) -> Series:
    """Return series of these lengths, without times, numbered from 1; `channel`: the noun of one of several columns."""
    width = values.shape[1]
    return Series(
        values=values,
        known=np.zeros((len(values), 0)),
        times=None,
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        names=tuple(f"series {number}" for number in range(1, len(lengths) + 1)),
        columns=("value",) if width == 1 else tuple(f"{channel} {number}" for number in range(1, width + 1)),
    )


def series_in(series: Series, owner: Int[np.ndarray, " S"], split: Split) -> SeriesSplit:
    """Return the series of a split, each from its first row to its last. `owner`: as from `split_of_series`."""
    first, last = series.offsets[:-1], series.offsets[1:]
    return SeriesSplit(series, first, np.where(owner == SPLITS.index(split), last, first))


def split_of_series(labels: Sequence[str], *, validation: float, test: float) -> Int[np.ndarray, " S"]:
    """Return the split of each series, as a place in SPLITS; it depends on the labels alone.

    Labels are balanced over the splits, unless they hardly repeat, as numbers do.

    Args:
        labels: Label of each series.
        validation: Fraction of the series that is validation; 0: none.
        test: Fraction of the series that is test; 0: none.

    Raises:
        UserError: There are too few series.
    """
    balanced = 2 * len(set(labels)) <= len(labels)
    of_label: dict[str, list[int]] = defaultdict(list)
    for place in map(int, shuffled(len(labels))):
        of_label[labels[place] if balanced else ""].append(place)
    owner = np.zeros(len(labels), dtype=np.int64)
    for places in of_label.values():
        begin = 0
        for name, fraction in (("validation", validation), ("test", test)):
            # One of each label at least, but train keeps one, too.
            count = min(max(int(len(places) * fraction), 1), len(places) - 1 - begin) if fraction else 0
            owner[places[begin : begin + count]] = SPLITS.index(name)
            begin += count
    for name, fraction in (("validation", validation), ("test", test)):
        if fraction and not (owner == SPLITS.index(name)).any():
            raise UserError(f"data.{name}_fraction={fraction}: there are too few series with the same label; give more")
    return owner
