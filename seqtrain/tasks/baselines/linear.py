"""Ridge regression on a bag of words: what a linear model knows of a text's number."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsqr

from seqtrain.data.corpus import Corpus

DAMPING = 1.0  # the square root of the penalty on weights: that of one example


def bag_of_words(
    train: Corpus, numbers: Float[np.ndarray, " n"], split: Corpus, vocab_size: int
) -> Float[np.ndarray, " m"]:
    """Predict the number of each document of `split` from its word counts; `numbers` are those of `train`."""
    # Around the mean of train, so that the penalty does not pull answers towards 0.
    mean = numbers.mean()
    weights = lsqr(_counts(train, vocab_size), numbers - mean, damp=DAMPING, iter_lim=200)[0]
    return _counts(split, vocab_size) @ weights + mean


def _counts(corpus: Corpus, vocab_size: int) -> csr_matrix:
    """Count each token in each document: (n, V), sparse."""
    ends = np.concatenate([[0], np.cumsum(corpus.lengths)])
    ones = np.ones(len(corpus.tokens))
    # Tokens that come twice in a row are added up.
    return csr_matrix((ones, corpus.tokens.astype(np.int64), ends), shape=(len(corpus.lengths), vocab_size))
