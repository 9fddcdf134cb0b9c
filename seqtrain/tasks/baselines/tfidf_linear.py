"""Logistic regression on TF-IDF of words and of pairs of neighbours: what a linear model knows of a text's label.

It reads the text itself and not a run's tokens, so that its figure is the same beside every tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

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
