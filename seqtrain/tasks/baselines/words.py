"""What each word is most often, whatever stands around it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int


def majority_of_words(
    tokens: Int[np.ndarray, " n"], labels: Int[np.ndarray, " n"], asked: Int[np.ndarray, " m"], *, default: int
) -> Int[np.ndarray, " m"]:
    """The most frequent label of each word that is asked for.

    Args:
        tokens: The words of train.
        labels: The label of each of them; of labels that are as frequent, the first one counts.
        asked: The words to label.
        default: The label of a word that train does not have.
    """
    pairs, counts = np.unique(np.stack([tokens, labels]), axis=1, return_counts=True)
    best: dict[int, tuple[int, int]] = {}
    # The pairs are in order, so that a later label of a word wins only where it is more frequent.
    for word, label, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        if count > best.get(word, (0, default))[0]:
            best[word] = count, label
    return np.array([best.get(word, (0, default))[1] for word in asked.tolist()], dtype=np.int64)
