"""Pseudo-random choices, the same in every version of Python: SplitMix64 (Steele, Lea, Flood 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

MASK = 2**64 - 1
Item = TypeVar("Item")


class Dice:
    """A sequence of choices that depends on the seed only."""

    def __init__(self, seed: int) -> None:
        self._state = seed & MASK

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & MASK
        x = self._state
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
        return (x ^ (x >> 31)) * count >> 64

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """So many different ones of `items`, in any order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]
