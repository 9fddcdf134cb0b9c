"""Multinomial naive Bayes on words and pairs of neighbours: what a linear model knows of a text's label.

Presence, not counts (Wang & Manning 2012), with add-one smoothing. It reads words as they are written, not a run's
tokens, so that its figure is the same beside every tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from seqtrain.tasks.baselines.words import word_numbers


def naive_bayes(
    train: Sequence[str], labels: Int[np.ndarray, " n"], split: Sequence[str], num_labels: int
) -> Int[np.ndarray, " m"]:
    """Return the likeliest label of each text of `split`; `labels` are those of the texts of `train`."""
    numbers: dict[str, int] = {}
    owner, keys = _features(train, numbers)
    known, place = np.unique(keys, return_inverse=True)
    counts = np.ones((num_labels, len(known)))
    np.add.at(counts, (labels[owner], place), 1)
    log_probs = np.log(counts / counts.sum(1, keepdims=True))  # (labels, features)
    prior = np.log(np.bincount(labels, minlength=num_labels) + 1.0)
    scores = np.tile(prior, (len(split), 1))
    owner, keys = _features(split, numbers)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    seen = known[at] == keys
    np.add.at(scores, owner[seen], log_probs[:, at[seen]].T)
    return scores.argmax(1)


def _features(texts: Sequence[str], numbers: dict[str, int]) -> tuple[Int[np.ndarray, " f"], Int[np.ndarray, " f"]]:
    """Return each text's distinct words and pairs of neighbours, once: the text of each, and its number."""
    words, lengths = word_numbers(texts, numbers)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    inside = owner[1:] == owner[:-1]
    pairs = ((words[:-1] + 1 << 32) + words[1:])[inside]
    both = np.stack([np.concatenate([owner, owner[1:][inside]]), np.concatenate([words, pairs])])
    distinct = np.unique(both, axis=1)
    return distinct[0], distinct[1]
