"""Lengths of examples; for many examples in a file, computed on request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from seqtrain.data.batching.documents import Stretches
from seqtrain.data.cache import cached_json

BLOCK = 1 << 20  # examples read at a time
MAX_TABLE = 1 << 22  # maximum size of the table in which rows of lengths are counted; above it they are sorted


class Lengths(ABC):
    """Tokens of each example on each separately padded side; indexed like a numpy array (n, sides)."""

    key: str | None = None  # identifies all lengths, if a file determines them

    @abstractmethod
    def __len__(self) -> int:
        """Return n."""

    @abstractmethod
    def take(self, index: Int[np.ndarray, " k"]) -> Int[np.ndarray, "k sides"]:
        """Return the lengths (k, sides) of these examples."""

    def __getitem__(self, index: Any) -> Int[np.ndarray, "..."]:
        """Return the lengths of an array or a slice of examples; `[examples, side]` returns one side."""
        examples, *sides = index if isinstance(index, tuple) else (index,)
        if isinstance(examples, slice):
            examples = np.arange(*examples.indices(len(self)))
        found = self.take(examples)
        return found[(slice(None), *sides)]


class StretchLengths(Lengths):
    """Lengths of stretches, one side: the tokens of a stretch plus `special` special ones."""

    def __init__(self, stretches: Stretches, special: int) -> None:
        self.stretches = stretches
        self.special = special
        if stretches.key is not None:
            self.key = f"{stretches.key} {special}"

    def __len__(self) -> int:
        return len(self.stretches)

    def take(self, index: Int[np.ndarray, " k"]) -> Int[np.ndarray, "k 1"]:
        return self.stretches.find(index).count[:, None] + self.special


class Distinct(NamedTuple):
    """The distinct rows of lengths, in lexicographic order, and the number of examples with each."""

    rows: Int[np.ndarray, "r sides"]
    counts: Int[np.ndarray, " r"]

    @property
    def num_tokens(self) -> int:
        """Tokens of all examples."""
        return int(self.counts @ self.rows.sum(1))


def distinct(lengths: Int[np.ndarray, "n sides"]) -> Distinct:
    """Return the distinct rows of lengths, found by counting, which is faster than sorting."""
    return _merged(lengths, None)


def distinct_of_all(lengths: Int[np.ndarray, "n sides"] | Lengths) -> Distinct:
    """Return the distinct rows of any number of examples, read block by block; cached if a file determines them."""
    if not isinstance(lengths, Lengths) or lengths.key is None or len(lengths) <= BLOCK:
        return _over_blocks(lengths)

    def make() -> list[Any]:
        return [part.tolist() for part in _over_blocks(lengths)]

    rows, counts = cached_json(f"distinct lengths {lengths.key}", make)
    return Distinct(np.array(rows, dtype=np.int64), np.array(counts, dtype=np.int64))


def blocks(lengths: Int[np.ndarray, "n sides"] | Lengths) -> Iterator[Int[np.ndarray, "k sides"]]:
    """Yield all lengths, in order, BLOCK examples at a time."""
    for begin in range(0, len(lengths), BLOCK):
        yield lengths[begin : begin + BLOCK]


def _over_blocks(lengths: Int[np.ndarray, "n sides"] | Lengths) -> Distinct:
    found = None
    for block in blocks(lengths):
        more = distinct(block)
        if found is not None:
            more = _merged(np.concatenate([found.rows, more.rows]), np.concatenate([found.counts, more.counts]))
        found = more
    assert found is not None, "there are no examples"
    return found


def _merged(rows: Int[np.ndarray, "n sides"], weights: Int[np.ndarray, " n"] | None) -> Distinct:
    """Return the distinct rows and the sum of the weights of each; without weights, the count of each."""
    sizes = tuple(int(size) + 1 for size in rows.max(0))
    number = np.ravel_multi_index(tuple(rows.T), sizes)
    if np.prod(sizes, dtype=float) <= MAX_TABLE:
        table = np.bincount(number, weights)  # weights as floats, which are exact up to 2^53 examples
        numbers = np.flatnonzero(table)
        counts = table[numbers].astype(np.int64)
    else:
        numbers, which = np.unique(number, return_inverse=True)
        counts = np.bincount(which, weights).astype(np.int64)
    return Distinct(np.stack(np.unravel_index(numbers, sizes), 1), counts)
