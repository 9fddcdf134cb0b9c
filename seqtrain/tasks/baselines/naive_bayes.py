"""Multinomial naive Bayes on words and pairs of neighbours: what a linear model knows of a text's label.

Presence, not counts (Wang & Manning 2012), with add-one smoothing.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from seqtrain.data.corpus import Corpus


def naive_bayes(train: Corpus, labels: Int[np.ndarray, " n"], split: Corpus, num_labels: int) -> Int[np.ndarray, " m"]:
    """The likeliest label (n,) of each document of `split`; `labels` are those of the documents of `train`."""
    owner, keys = _features(train)
    known, place = np.unique(keys, return_inverse=True)
    counts = np.ones((num_labels, len(known)))
    np.add.at(counts, (labels[owner], place), 1)
    log_probs = np.log(counts / counts.sum(1, keepdims=True))  # (labels, features)
    prior = np.log(np.bincount(labels, minlength=num_labels) + 1.0)
    scores = np.tile(prior, (len(split.lengths), 1))
    owner, keys = _features(split)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    seen = known[at] == keys
    np.add.at(scores, owner[seen], log_probs[:, at[seen]].T)
    return scores.argmax(1)


def _features(corpus: Corpus) -> tuple[Int[np.ndarray, " f"], Int[np.ndarray, " f"]]:
    """Each document's distinct tokens and pairs of neighbours, once: whose they are, and which."""
    tokens = corpus.tokens.astype(np.int64)
    owner = np.repeat(np.arange(len(corpus.lengths)), corpus.lengths)
    inside = owner[1:] == owner[:-1]
    pairs = ((tokens[:-1] + 1 << 32) + tokens[1:])[inside]
    both = np.stack([np.concatenate([owner, owner[1:][inside]]), np.concatenate([tokens, pairs])])
    distinct = np.unique(both, axis=1)
    return distinct[0], distinct[1]
