"""Pseudo-random numbers, the same in every version of Python and numpy: SplitMix64 (Steele, Lea, Flood 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Integer, UInt64

MASK = 2**64 - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
Item = TypeVar("Item")


def mixed(key: UInt64[np.ndarray, "*#shape"], step: Integer[np.ndarray, "*#shape"]) -> UInt64[np.ndarray, "*#shape"]:
    """Return the number that a generator seeded with `key` gives as its `step`-th, from 0; both broadcast."""
    # The generator adds STEP for each number: so the n-th is had without those before it.
    with np.errstate(over="ignore"):
        x = key + (step.astype(np.uint64) + np.uint64(1)) * np.uint64(STEP)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    return x ^ (x >> np.uint64(31))


class SplitMix64:
    """A sequence of choices that depends on the seed only."""

    def __init__(self, seed: int) -> None:
        self._state = seed & MASK

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1."""
        self._state = (self._state + STEP) & MASK  # Python's integers do not wrap by themselves
        x = self._state
        x = (x ^ (x >> 30)) * FIRST & MASK
        x = (x ^ (x >> 27)) * SECOND & MASK
        return (x ^ (x >> 31)) * count >> 64  # the upper bits of the product: fairer than a remainder

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """Return `count` different ones of `items`, in random order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]
