"""The nearest text by its words: cosine of vectors of inverse document frequency (Spärck Jones 1972; Salton 1975)."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np


def closest(known: Sequence[str], asked: Sequence[str]) -> list[int]:
    """Return the index of the `known` text closest to each asked text; the first one if several are equally close.

    The score is the cosine of their sets of words. A word is weighted by the logarithm of its rarity among known texts.
    """
    rows: dict[str, list[int]] = defaultdict(list)  # of each word the texts that have it
    for row, text in enumerate(known):
        for word in words(text):
            rows[word].append(row)
    places, weights, norms = {}, {}, np.zeros(len(known))
    for word, having in rows.items():
        places[word] = np.array(having)  # once: an index that is a list is turned into one at each use
        weights[word] = math.log(1 + len(known) / len(having)) ** 2  # squared: it stands in both vectors
        norms[places[word]] += weights[word]
    norms = np.sqrt(np.maximum(norms, 1e-12))  # a text without words is like none
    nearest = []
    for text in asked:
        products = np.zeros(len(known))
        for word in sorted(words(text) & places.keys()):  # sorted: a sum of floats depends on its order
            products[places[word]] += weights[word]
        nearest.append(int((products / norms).argmax()))  # the length of the asked one changes no order
    return nearest


def words(text: str) -> set[str]:
    """Return the distinct words of a text, without case and punctuation."""
    return set(re.findall(r"\w+", text.lower()))
