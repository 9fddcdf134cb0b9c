"""Words over a group: elements one after another, and at each element the product of all elements so far."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Literal

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.synthetic import Synthetic

Group = Literal["A5", "Z60", "S3"]
Element = tuple[int, ...]


@dataclass(kw_only=True, eq=False)
class GroupWords(Synthetic):
    """Uniformly drawn elements; each label is the product so far (Merrill, Petty & Sabharwal 2024).

    A5, the even permutations of five things, is the smallest group that is not solvable: no parallel network of
    constant depth is known to recognise its words. Z60, addition modulo 60, has as many elements and is commutative.
    S3, all permutations of three things, is the smallest group that is not commutative.

    Attributes:
        group: The group; lengths are in elements.
    """

    size: int = 20000
    shortest: int = 4
    longest: int = 32
    test_shortest: int | None = 4
    test_longest: int | None = 128
    group: Group = "A5"

    called = "group_words"

    @cached_property
    def _table(self) -> list[list[int]]:
        return _table(self.group)

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        words, labels = [], []
        product = 0  # the neutral element
        for _ in range(length):
            # Uniform elements make each product uniform too, so that no answer is likelier than another.
            element = generator.below(len(self._table))
            # The new element comes last: in a group that is not commutative the order is what is to be learnt.
            product = self._table[product][element]
            words.append(f"g{element}")
            labels.append(f"g{product}")
        return words, labels

    def chance(self) -> float:
        return 1 / len(self._table)


def _table(group: Group) -> list[list[int]]:
    """Return the square table of products, as numbers of elements; number 0 is the neutral element."""
    if group == "Z60":
        return [[(one + other) % 60 for other in range(60)] for one in range(60)]
    # In the order of `permutations` the first one leaves all in place.
    if group == "S3":
        elements = list(permutations(range(3)))
    else:
        elements = [element for element in permutations(range(5)) if _is_even(element)]
    # Sixty squared products, made once: an example then is one look at a table a word.
    numbers = {element: number for number, element in enumerate(elements)}
    table = []
    for one in elements:
        table.append([numbers[_after(other, one)] for other in elements])
    return table


def _after(second: Element, first: Element) -> Element:
    """Return the permutation that applies `first`, and then `second`."""
    return tuple(second[place] for place in first)


def _is_even(element: Element) -> bool:
    inversions = 0
    for place, value in enumerate(element):
        inversions += sum(later < value for later in element[place + 1 :])
    return inversions % 2 == 0
