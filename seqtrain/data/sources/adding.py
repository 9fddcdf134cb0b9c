"""The adding problem: at the end of a long sequence, predict the sum of two marked numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, UInt64

from seqtrain.data.batching.splitmix64 import mixed
from seqtrain.data.sources.base import SPLITS, Split
from seqtrain.data.sources.series import SeriesSource
from seqtrain.data.values.series import Series, SeriesSplit
from seqtrain.errors import UserError

DIGITS = 53  # bits of a float64
MARK_BITS = 32  # bits of a random number that select a position


class Adding(SeriesSource):
    """Series with a number in [0, 1) and a mark at each step, both known ahead; the last row's value is the answer.

    Defined by Hochreiter & Schmidhuber (1997), in the form of Le et al. (2015) and Bai et al. (2018): each half has one
    mark, and the answer is the sum of the two marked numbers. Always predicting the mean has a squared error of 1/6.
    Whole series are in a split.
    """

    def __init__(
        self, *, size: int = 10000, validation_size: int = 1000, test_size: int = 1000, length: int = 200, seed: int = 0
    ) -> None:
        """Set the sizes.

        Args:
            size: Number of series in train.
            validation_size: Number of series in validation.
            test_size: Number of series in test.
            length: T, the steps per series.
            seed: Seed of all random choices.
        """
        # `mean`, because with `mask` the time since the last value would count steps, which the papers' models lack.
        super().__init__(
            channels="together",
            missing="mean",
            time_features=None,
            season=None,
            rows=None,
            validation_fraction=0.0,
            test_fraction=0.0,
        )
        if length < 2:
            raise UserError(f"data.length={length}: each half of a series has a mark; expected 2 steps or more")
        self.length = length
        self.seed = seed
        self._sizes: dict[Split, int] = dict(zip(SPLITS, (size, validation_size, test_size), strict=True))

    def check(self) -> None:
        """Check nothing: the series are generated, and drawing them takes most of a second."""

    def describe(self) -> dict[str, Any]:
        sizes = {split: size for split, size in self._sizes.items() if size}
        return {"source": "adding", "seed": self.seed, "series": sizes, "length": self.length}

    def at_length(self, split: Split, length: int, most: int) -> dict[str, Any]:
        """Return the options of `data` with which a split has at most `most` series of this length, and others one."""
        # Each split is drawn with its own key, so the sizes of other splits do not matter.
        sizes = {f"{each}_size": 1 for each in SPLITS[1:]} | {f"{split}_size": min(self._sizes[split], most)}
        return {"length": length, "max_length": length, "size": 1, **sizes}

    def has(self, split: Split) -> bool:
        return self._sizes[split] > 0

    def split(self, split: Split) -> SeriesSplit:
        if not self.has(split):
            raise UserError(f"data.{split}_size=0: there is no {split} split; set it above 0")
        offsets = self.series.offsets
        before = sum(self._sizes[each] for each in SPLITS[: SPLITS.index(split)])
        is_here = np.zeros(len(offsets) - 1, dtype=bool)
        is_here[before : before + self._sizes[split]] = True
        # Series of other splits get an empty range of rows.
        return SeriesSplit(self.series, offsets[:-1], np.where(is_here, offsets[1:], offsets[:-1]))

    def read(self) -> Series:
        draws = np.concatenate([self._draw(number) for number in range(len(SPLITS))])
        count, length = len(draws), self.length
        half = length // 2
        known = np.zeros((count, length + 1, 2))
        known[:, 1:, 0] = _in_unit_interval(draws[:, :length])
        every = np.arange(count)
        marks = (_below(draws[:, length], half), half + _below(draws[:, length + 1], length - half))
        answers = np.zeros(count)
        for mark in marks:
            # Steps are in rows 1 to T: known columns are read together with the row whose value is predicted.
            known[every, 1 + mark, 1] = 1.0
            answers += known[every, 1 + mark, 0]
        values = np.full((count, length + 1), np.nan)
        values[:, -1] = answers
        return Series(
            values=values.reshape(-1, 1),
            known=known.reshape(-1, 2),
            times=None,
            offsets=np.arange(count + 1) * (length + 1),
            names=tuple(f"series {number}" for number in range(count)),
            columns=("sum",),
            known_columns=("number", "mark"),
            asked_after=length,
        )

    def _draw(self, split: int) -> UInt64[np.ndarray, "n T+2"]:
        """Draw the random numbers of each series of a split: one for each step, and one for each mark."""
        # Each split and series has its own key: with other sizes the first series stay the same.
        of_split = mixed(np.array([self.seed], dtype=np.uint64), np.array([split]))
        of_series = mixed(of_split, np.arange(self._sizes[SPLITS[split]]))
        return mixed(of_series[:, None], np.arange(self.length + 2))


def _in_unit_interval(draws: UInt64[np.ndarray, "n T"]) -> Float[np.ndarray, "n T"]:
    """Return numbers (n, T) in [0, 1)."""
    return (draws >> np.uint64(64 - DIGITS)) * 2.0**-DIGITS


def _below(draws: UInt64[np.ndarray, " n"], count: int) -> np.ndarray:
    """Return uniform whole numbers (n,) from 0 to `count` - 1."""
    # The upper bits of a product, as in SplitMix64.below; with half of the bits, so that it does not overflow.
    product = (draws >> np.uint64(64 - MARK_BITS)) * np.uint64(count)
    return (product >> np.uint64(MARK_BITS)).astype(np.int64)
