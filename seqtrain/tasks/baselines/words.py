"""Number the words of texts, and label each by its most frequent label, whatever stands around it.

Baselines read words as they are written, so that their figures are the same beside every tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Int

from seqtrain.data.tokenizers.encoding import words


def word_numbers(
    texts: Iterable[str], known: dict[str, int], cut: Callable[[str], list[str]] = words
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " texts"]]:
    """Return the numbers of all words, end to end, and how many words each text has.

    Args:
        texts: The texts.
        known: The number of each word; new words are added to it.
        cut: Splits a text into words.
    """
    rows = [np.array([known.setdefault(word, len(known)) for word in cut(text)], dtype=np.int64) for text in texts]
    return np.concatenate([np.zeros(0, dtype=np.int64), *rows]), np.array(list(map(len, rows)), dtype=np.int64)


def majority_of_words(
    tokens: Int[np.ndarray, " n"], labels: Int[np.ndarray, " n"], asked: Int[np.ndarray, " m"], *, default: int
) -> Int[np.ndarray, " m"]:
    """Return the most frequent label of each word in `asked`.

    Args:
        tokens: The words of train.
        labels: The label of each of them. Among equally frequent labels the first one is returned.
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
