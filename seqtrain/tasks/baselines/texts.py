"""Baselines of texts: the most frequent label of a word, naive Bayes, linear models and the nearest text.

All but `bag_of_words` read words as they are written, not a run's tokens, so that their figures are the same beside
every tokenizer.
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


def naive_bayes(
    train: Sequence[str], labels: Int[np.ndarray, " n"], split: Sequence[str], num_labels: int
) -> Int[np.ndarray, " m"]:
    """Return the likeliest label of each text of `split`, by multinomial naive Bayes on words and pairs of neighbours.

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
    """Return each text's distinct words and pairs of neighbours, once: the text of each, and its number."""
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
INVERSE_PENALTY = 10.0  # scikit-learn's own 1.0 is 2 to 4 points worse on each of four sets of sentences
MAX_CHARACTERS = 64 << 20  # of train: so long a fit takes minutes
MAX_ITERATIONS = 1000
OPTIONS = f"{WORD} {INVERSE_PENALTY} {MAX_ITERATIONS}"  # that its figures depend on


def tfidf_linear(train: Sequence[str], labels: Int[np.ndarray, " n"], split: Sequence[str]) -> Int[np.ndarray, " m"]:
    """Return the label of each text of `split`, by a linear model of words and pairs of neighbours.

    Args:
        train: Texts that it learns from, unless `left_out` has a reason against it.
        labels: Theirs; at least two distinct ones.
        split: Texts that it answers.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    features = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD, sublinear_tf=True)
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=MAX_ITERATIONS)
    model.fit(features.fit_transform(train), labels)
    return np.asarray(model.predict(features.transform(split)))


def left_out(train: Sequence[str]) -> str | None:
    """Return why there is no such baseline here, or None."""
    if not any(text.strip() for text in train):
        return "train has no word"
    # A fit of hours at the end of a training would look as if that hung.
    if sum(map(len, train)) > MAX_CHARACTERS:
        return f"train has more than {MAX_CHARACTERS >> 20} million characters"
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return NEEDED
    return None


def tfidf_cosines(queries: Sequence[str], candidates: Sequence[str]) -> Scores:
    """Return cosines of TF-IDF over character trigrams, of which two languages share more than of words.

    The inverse document frequencies are computed over all queries and candidates together.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True)
    # No label and no pairing is looked at here, only letters, so that to fit it on what is asked gives nothing away.
    letters.fit([*queries, *candidates])
    left: Any = letters.transform(queries)  # sparse matrices, which pyright does not know
    right: Any = letters.transform(candidates)
    right = right.T.tocsr()
    return lambda block: (left[block] @ right).toarray()


DAMPING = 1.0  # the square root of the penalty on weights: that of one example


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
    # Tokens that come twice in a row are added up.
    return csr_matrix((ones, corpus.tokens.astype(np.int64), ends), shape=(len(corpus.lengths), vocab_size))


def closest(known: Sequence[str], asked: Sequence[str]) -> list[int]:
    """Return the index of the `known` text closest to each asked text; the first one if several are equally close.

    The score is the cosine of their sets of words. A word is weighted by the logarithm of its rarity among known texts
    (Spärck Jones 1972; Salton 1975).
    """
    rows: dict[str, list[int]] = defaultdict(list)  # of each word the texts that have it
    for row, text in enumerate(known):
        for word in distinct_words(text):
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
        for word in sorted(distinct_words(text) & places.keys()):  # sorted: a sum of floats depends on its order
            products[places[word]] += weights[word]
        nearest.append(int((products / norms).argmax()))  # the length of the asked one changes no order
    return nearest


def distinct_words(text: str) -> set[str]:
    """Return the distinct words of a text, without case and punctuation."""
    return set(re.findall(r"\w+", text.lower()))
