"""A permutation of many items, each place computed alone: a Feistel network with cycle walking."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int, UInt64

from seqtrain.data.batching.splitmix64 import MASK, mixed

ROUNDS = 6  # four are enough for a permutation that cannot be told from a random one (Luby and Rackoff 1988)


def permuted(places: Int[np.ndarray, " k"], count: int, *key: int) -> Int[np.ndarray, " k"]:
    """Return the items at these places in a random order of 0 to `count` - 1.

    Args:
        places: From 0 to `count` - 1, (k,).
        count: Number of items; memory does not depend on it.
        key: Numbers that decide the order, such as a seed and an epoch.

    Returns:
        Numbers from 0 to `count` - 1, (k,), distinct for distinct places.
    """
    # A network permutes numbers of an even count of bits: at most four times as many as there are things.
    half = np.uint64(max(-(-(count - 1).bit_length() // 2), 1))
    keys = _round_keys(key)
    found = places.astype(np.uint64)
    outside = np.arange(len(found))
    while len(outside):
        # A walk through the cycle of the larger permutation comes back to the things that there are.
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
    """Return a key (1,) for each round."""
    state = np.zeros(1, dtype=np.uint64)
    for number in key:
        state = mixed(state ^ np.uint64(number & MASK), np.zeros(1, dtype=np.uint64))
    return [mixed(state, np.array([number])) for number in range(ROUNDS)]
