"""The nearest text by its words: cosine of vectors of inverse document frequency (Spärck Jones 1972; Salton 1975)."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np


def closest(known: Sequence[str], asked: Sequence[str]) -> list[int]:
    """Which of the `known` texts is most like each one that is asked for; the first of equals.

    The cosine of their sets of words, where a word weighs the logarithm of how rare it is among those known.
    """
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(known):
        for word in words(text):
            rows[word].append(row)
    where = {word: np.array(found) for word, found in rows.items()}
    weight = {word: math.log(1 + len(known) / len(found)) ** 2 for word, found in where.items()}
    norms = np.zeros(len(known))
    for word, found in where.items():
        norms[found] += weight[word]
    norms = np.sqrt(np.maximum(norms, 1e-12))  # a text without words is like none
    places = []
    for text in asked:
        shared = np.zeros(len(known))
        for word in sorted(words(text) & where.keys()):
            shared[where[word]] += weight[word]
        places.append(int((shared / norms).argmax()))
    return places


def words(text: str) -> set[str]:
    """The distinct words of a text, without case and punctuation."""
    return set(re.findall(r"\w+", text.lower()))
