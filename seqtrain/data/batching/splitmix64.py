"""Pseudo-random numbers, the same in every version of Python and numpy: SplitMix64 (Steele, Lea, Flood 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Int, Integer, UInt64

MASK = 2**64 - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
Item = TypeVar("Item")


def mixed(key: UInt64[np.ndarray, "*#shape"], step: Integer[np.ndarray, "*#shape"]) -> UInt64[np.ndarray, "*#shape"]:
    """Return the number that a generator seeded with `key` gives as its `step`-th, from 0; both broadcast."""
    # The generator adds STEP for each number, so the n-th number is computed without the earlier ones.
    with np.errstate(over="ignore"):
        x = key + (step.astype(np.uint64) + np.uint64(1)) * np.uint64(STEP)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    return x ^ (x >> np.uint64(31))


class SplitMix64:
    """A sequence of choices that depends only on the seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & MASK

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1."""
        self._state = (self._state + STEP) & MASK  # Python's integers do not overflow
        x = self._state
        x = (x ^ (x >> 30)) * FIRST & MASK
        x = (x ^ (x >> 27)) * SECOND & MASK
        return (x ^ (x >> 31)) * count >> 64  # the upper bits of the product: less biased than a remainder

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """Return `count` different ones of `items`, in random order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]


ROUNDS = 6  # four suffice for a permutation that is indistinguishable from a random one (Luby and Rackoff 1988)


def permuted(places: Int[np.ndarray, " k"], count: int, *key: int) -> Int[np.ndarray, " k"]:
    """Return the items at these positions of a random order of 0 to `count` - 1.

    Args:
        places: Positions from 0 to `count` - 1, (k,).
        count: Number of items; memory does not depend on it.
        key: Numbers that decide the order, such as a seed and an epoch.

    Returns:
        Numbers from 0 to `count` - 1, (k,), distinct for distinct places.
    """
    # The network permutes all numbers of an even number of bits: at most four times as many numbers as items.
    half = np.uint64(max(-(-(count - 1).bit_length() // 2), 1))
    keys = _round_keys(key)
    found = places.astype(np.uint64)
    outside = np.arange(len(found))
    while len(outside):
        # Following a cycle of the larger permutation always returns to a number below `count`.
        walked = _network(found[outside], half, keys)
        found[outside] = walked
        outside = outside[walked >= count]
    return found.astype(np.int64)


def _network(
    numbers: UInt64[np.ndarray, " k"], half: np.uint64, keys: list[UInt64[np.ndarray, " 1"]]
) -> UInt64[np.ndarray, " k"]:
    """Return the images (k,) under a permutation of all numbers of twice `half` bits."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = numbers >> half, numbers & mask
    for key in keys:
        left, right = right, left ^ (mixed(key, right) & mask)
    return (left << half) | right


def _round_keys(key: tuple[int, ...]) -> list[UInt64[np.ndarray, " 1"]]:
    """Return a key (1,) for each round of the network."""
    state = np.zeros(1, dtype=np.uint64)
    for number in key:
        state = mixed(state ^ np.uint64(number & MASK), np.zeros(1, dtype=np.uint64))
    return [mixed(state, np.array([number])) for number in range(ROUNDS)]
