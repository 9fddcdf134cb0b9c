"""Rows that are drawn from a seed, in sets that are never cut between splits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import SPLITS, Cut, Row, Source, Split


class Generated(Source):
    """A source of made-up rows, which are all drawn when the first one is read."""

    fields = ("text", "label")
    called = ""  # the source in `describe`
    rows_called = ""  # its rows there

    def __init__(self, *, size: int, seed: int, validation_fraction: float, test_fraction: float, in_set: int) -> None:
        """Set the cut. `size`: rows in all splits; `in_set`: rows of a set, whose labels depend on each other."""
        self.size = size
        self.seed = seed
        self._sets = size // in_set
        self._cut = Cut(by="row", validation=validation_fraction, test=test_fraction)

    @abstractmethod
    def draw(self, generator: SplitMix64, count: int) -> Sequence[Sequence[Row]]:
        """Draw `count` sets of rows."""

    def check(self) -> None:
        self._cut.check(self._sets)

    def documents(self, split: Split) -> Iterator[str]:
        return (row["text"] for row in self.rows(split))

    def rows(self, split: Split) -> Iterator[Row]:
        # Sets are cut, not rows: one row of a set may give away the others.
        sets = self._cut.rows(lambda: iter(self._drawn), split)
        return map(dict, chain.from_iterable(sets))  # copies: a row is the reader's own

    def has(self, split: Split) -> bool:
        return self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        sizes = {split: len(list(self.rows(split))) for split in SPLITS if self.has(split)}
        return {"source": self.called, "seed": self.seed, self.rows_called: sizes}

    @cached_property
    def _drawn(self) -> Sequence[Sequence[Row]]:
        return self.draw(SplitMix64(self.seed), self._sets)
