"""Baselines of texts: the most frequent label of a word, naive Bayes, linear models and the nearest text.

All but `bag_of_words` read words as they are written, not a run's tokens, so their results are the same for every
tokenizer.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsqr

from seqtrain.data.corpus import Corpus
from seqtrain.data.tokenizers.encoding import words
from seqtrain.tasks.metrics.retrieval import Scores


def word_numbers(
    texts: Iterable[str], known: dict[str, int], cut: Callable[[str], list[str]] = words
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " texts"]]:
    """Return the numbers of all words, end to end, and the number of words of each text.

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


def naive_bayes(
    train: Sequence[str], labels: Int[np.ndarray, " n"], split: Sequence[str], num_labels: int
) -> Int[np.ndarray, " m"]:
    """Return the likeliest label of each text of `split`, by multinomial naive Bayes on words and pairs of words.

    A word counts once in a text (presence, Wang & Manning 2012), with add-one smoothing. `labels` are those of the
    texts of `train`.
    """
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
    """Return the distinct words and pairs of neighbouring words of each text: the text and the number of each."""
    words, lengths = word_numbers(texts, numbers)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    inside = owner[1:] == owner[:-1]
    pairs = ((words[:-1] + 1 << 32) + words[1:])[inside]
    both = np.stack([np.concatenate([owner, owner[1:][inside]]), np.concatenate([words, pairs])])
    distinct = np.unique(both, axis=1)
    return distinct[0], distinct[1]


NEEDED = "it needs scikit-learn: pip install 'seqtrain[linear]'"
# Punctuation marks are words: `good !` and `good !!` differ, and `good.` holds the word `good`.
WORD = r"[\w']+|[^\w\s]"
INVERSE_PENALTY = 10.0  # scikit-learn's default 1.0 is 2 to 4 points worse on each of four sets of sentences
MAX_CHARACTERS = 64 << 20  # of train; a fit to as many takes minutes
MAX_ITERATIONS = 1000
OPTIONS = f"{WORD} {INVERSE_PENALTY} {MAX_ITERATIONS}"  # options that its results depend on


def tfidf_linear(train: Sequence[str], labels: Int[np.ndarray, " n"], split: Sequence[str]) -> Int[np.ndarray, " m"]:
    """Return the label of each text of `split`, by a linear model of words and pairs of neighbouring words.

    Args:
        train: Texts to fit to, for which `left_out` returns None.
        labels: Labels of `train`, at least two distinct ones.
        split: Texts to label.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    features = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD, sublinear_tf=True)
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=MAX_ITERATIONS)
    model.fit(features.fit_transform(train), labels)
    return np.asarray(model.predict(features.transform(split)))


def left_out(train: Sequence[str]) -> str | None:
    """Return why `tfidf_linear` is left out for these texts, or None."""
    if not any(text.strip() for text in train):
        return "train has no word"
    # A fit of hours at the end of a training would look like a hang.
    if sum(map(len, train)) > MAX_CHARACTERS:
        return f"train has more than {MAX_CHARACTERS >> 20} million characters"
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return NEEDED
    return None


def tfidf_cosines(queries: Sequence[str], candidates: Sequence[str]) -> Scores:
    """Return cosines of TF-IDF over character trigrams: two languages share more of these than words.

    The inverse document frequencies are computed over all queries and candidates together.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True)
    # Fitting on the evaluated texts leaks nothing: only letters are used, no label and no pairing.
    letters.fit([*queries, *candidates])
    left: Any = letters.transform(queries)  # sparse matrices, which pyright does not know
    right: Any = letters.transform(candidates)
    right = right.T.tocsr()
    return lambda block: (left[block] @ right).toarray()


DAMPING = 1.0  # square root of the penalty on weights, as large as the weight of one example


def bag_of_words(
    train: Corpus, numbers: Float[np.ndarray, " n"], split: Corpus, vocab_size: int
) -> Float[np.ndarray, " m"]:
    """Predict the number of each document of `split` from its word counts; `numbers` are those of `train`."""
    # Around the mean of train, so that the penalty does not pull answers towards 0.
    mean = numbers.mean()
    weights = lsqr(_token_counts(train, vocab_size), numbers - mean, damp=DAMPING, iter_lim=200)[0]
    return _token_counts(split, vocab_size) @ weights + mean


def _token_counts(corpus: Corpus, vocab_size: int) -> csr_matrix:
    """Count each token in each document: (n, V), sparse."""
    ends = np.concatenate([[0], np.cumsum(corpus.lengths)])
    ones = np.ones(len(corpus.tokens))
    # Repeated tokens of a document are summed.
    return csr_matrix((ones, corpus.tokens.astype(np.int64), ends), shape=(len(corpus.lengths), vocab_size))


def closest(known: Sequence[str], asked: Sequence[str]) -> list[int]:
    """Return the index of the `known` text closest to each asked text; the first one if several are equally close.

    The score is the cosine of their sets of words. A word is weighted by the logarithm of its rarity among known texts
    (Spärck Jones 1972; Salton 1975).
    """
    rows: dict[str, list[int]] = defaultdict(list)  # the texts that contain each word
    for row, text in enumerate(known):
        for word in distinct_words(text):
            rows[word].append(row)
    places, weights, norms = {}, {}, np.zeros(len(known))
    for word, having in rows.items():
        places[word] = np.array(having)  # converted once: a list would be converted at each use
        weights[word] = math.log(1 + len(known) / len(having)) ** 2  # squared, because it is in both vectors
        norms[places[word]] += weights[word]
    norms = np.sqrt(np.maximum(norms, 1e-12))  # a text without words is similar to none
    nearest = []
    for text in asked:
        products = np.zeros(len(known))
        for word in sorted(distinct_words(text) & places.keys()):  # sorted: a sum of floats depends on its order
            products[places[word]] += weights[word]
        nearest.append(int((products / norms).argmax()))  # the norm of the asked text does not change the order
    return nearest


def distinct_words(text: str) -> set[str]:
    """Return the distinct words of a text, without case and punctuation."""
    return set(re.findall(r"\w+", text.lower()))
