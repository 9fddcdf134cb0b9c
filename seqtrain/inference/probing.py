"""A probe (Alain and Bengio 2016): how well a linear model predicts labels from fixed vectors, by cross-validation.

Everything that is fitted, including scaling, vocabulary and penalty, is fitted only on the rows outside a fold.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.sources.labelled import Rows, fold_of_rows
from seqtrain.errors import Unavailable
from seqtrain.tasks.baselines.texts import WORD

Kind = Literal["names", "numbers"]
Features = Float[np.ndarray, "n D"] | Sequence[str]
"""Vectors, or texts from which TF-IDF is computed."""

NEEDED = "seqtrain probe needs scikit-learn: pip install 'seqtrain[linear]'"
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)  # L2 penalties, added to a sum of losses over rows
INNER_FOLDS = 3  # inner folds of the rows outside a fold, to choose its penalty
MIN_FOLDS = 3  # with two, a label with three texts could have one for training and none for choosing the penalty
MAX_ITERATIONS = 1000
MEASURES: dict[Kind, tuple[str, ...]] = {"names": ("accuracy", "macro_f1"), "numbers": ("mse", "mae")}
CHANCE: dict[Kind, str] = {"names": "most_frequent", "numbers": "mean"}


def check_installed() -> None:
    """Raise Unavailable if scikit-learn is missing."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise Unavailable(NEEDED) from None


@dataclass(frozen=True)
class Measured:
    """The results of one kind of features on the labels."""

    folds: dict[str, list[float]]  # values on all folds, by measure
    penalties: list[float]  # chosen penalties, by fold; empty for a baseline without a fit
    unfinished: int = 0  # number of fits that did not converge

    def mean(self, measure: str) -> float:
        """Return the mean over folds. Their sizes differ by at most one row."""
        return float(np.mean(self.folds[measure]))

    def spread(self, measure: str) -> float:
        """Return the standard deviation over folds, which share training rows: the true spread may be larger."""
        return float(np.std(self.folds[measure], ddof=1))

    def plain(self) -> dict[str, Any]:
        """Return the results as plain values for JSON."""
        plain: dict[str, Any] = {}
        for measure, values in self.folds.items():
            plain[measure] = {"mean": self.mean(measure), "std": self.spread(measure), "folds": values}
        if self.penalties:
            plain |= {"penalties": self.penalties, "unfinished": self.unfinished}
        return plain


def probe(
    features: Mapping[str, Features], rows: Rows, labels: np.ndarray, *, kind: Kind, folds: int, seed: int
) -> dict[str, Measured]:
    """Predict labels from each kind of features, all on the same folds.

    Args:
        features: features by name: a vector for each row, or its text.
        rows: the rows; those with equal texts are put in one fold.
        labels: names (n,), predicted by logistic regression, or numbers (n,), by ridge regression.
        kind: names or numbers.
        folds: at least MIN_FOLDS.
        seed: assigns rows to folds.

    Returns:
        The results of each kind of features, and of a constant prediction without features.

    Raises:
        UserError: If the rows cannot be assigned to folds.
        Unavailable: If scikit-learn is missing.
    """
    check_installed()
    # The same folds for all features, so that they are compared on the same texts.
    fold_of = fold_of_rows(rows, folds, seed)
    found = {}
    for name, values in features.items():
        found[name] = _measured(values, rows, labels, fold_of, kind, seed)
    found[CHANCE[kind]] = _measured(None, rows, labels, fold_of, kind, seed)
    return found


def _measured(
    features: Features | None, rows: Rows, labels: np.ndarray, fold_of: Int[np.ndarray, " n"], kind: Kind, seed: int
) -> Measured:
    values: dict[str, list[float]] = {measure: [] for measure in MEASURES[kind]}
    penalties: list[float] = []
    unfinished = 0
    for fold in range(int(fold_of.max()) + 1):
        test = np.flatnonzero(fold_of == fold)
        train = np.flatnonzero(fold_of != fold)
        if features is None:
            answers = _constant(labels[train], len(test), kind)
        else:
            penalty = _chosen(features, rows, labels, train, kind, seed)
            penalties.append(penalty)
            inputs, asked = _prepared(features, train, test)
            answers, converged = _fitted(inputs, labels[train], asked, kind, penalty)
            unfinished += not converged
        for measure, value in _compared(answers, labels[test], kind).items():
            values[measure].append(value)
    return Measured(values, penalties, unfinished)


def _chosen(
    features: Features, rows: Rows, labels: np.ndarray, train: Int[np.ndarray, " m"], kind: Kind, seed: int
) -> float:
    """Choose the penalty that does best on inner folds of `train`. Ties go to the largest."""
    inner = fold_of_rows(subset(rows, train), INNER_FOLDS, seed)
    measure = MEASURES[kind][0]
    # Inner folds of the training rows only: a penalty chosen on the test rows would bias the result.
    total = dict.fromkeys(PENALTIES, 0.0)
    for fold in range(INNER_FOLDS):
        known, asked = train[inner != fold], train[inner == fold]
        inputs, outside = _prepared(features, known, asked)
        for penalty in PENALTIES:
            answers, _ = _fitted(inputs, labels[known], outside, kind, penalty)
            value = _compared(answers, labels[asked], kind)[measure]
            total[penalty] += value if kind == "names" else -value
    return max(reversed(PENALTIES), key=total.__getitem__)


def subset(rows: Rows, kept: Int[np.ndarray, " m"]) -> Rows:
    """Select rows in the order of `kept`, with groups renumbered among them."""
    first: dict[int, int] = {}
    groups, labels = [], []
    for number, row in enumerate(kept.tolist()):
        groups.append(first.setdefault(rows.groups[row], number))
        labels.append(rows.labels[row])
    return replace(rows, groups=groups, labels=labels)


def _prepared(features: Features, train: Int[np.ndarray, " m"], test: Int[np.ndarray, " k"]) -> tuple[Any, Any]:
    """Return features of train and test, scaled or weighted by TF-IDF with statistics of `train` only."""
    # Also which words there are and how rare they are: a word of the fold alone is no word that could be known.
    if isinstance(features, np.ndarray):
        from sklearn.preprocessing import StandardScaler

        # A single penalty needs features of the same scale.
        scaler = StandardScaler().fit(features[train])
        return scaler.transform(features[train]), scaler.transform(features[test])
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD, sublinear_tf=True)
    return words.fit_transform([features[row] for row in train]), words.transform([features[row] for row in test])


def _fitted(inputs: Any, labels: np.ndarray, asked: Any, kind: Kind, penalty: float) -> tuple[np.ndarray, bool]:
    """Fit a linear model; return its predictions, and True if the fit converged."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    if kind == "numbers":
        return np.asarray(Ridge(alpha=penalty).fit(inputs, labels).predict(asked)), True
    model = LogisticRegression(C=1 / penalty, max_iter=MAX_ITERATIONS)
    # Count convergence warnings instead of printing them: there may be a hundred fits.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(inputs, labels)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return np.asarray(model.predict(asked)), converged


def _constant(labels: np.ndarray, count: int, kind: Kind) -> np.ndarray:
    """Predict for all rows the constant that fits `labels` best: their mean or the most frequent label."""
    if kind == "numbers":
        return np.full(count, labels.mean())
    names, counts = np.unique(labels, return_counts=True)
    return np.full(count, names[counts.argmax()])


def _compared(answers: np.ndarray, labels: np.ndarray, kind: Kind) -> dict[str, float]:
    if kind == "numbers":
        errors = answers - labels
        return {"mse": float((errors**2).mean()), "mae": float(np.abs(errors).mean())}
    from sklearn.metrics import f1_score

    # Over the labels that occur in the fold.
    macro_f1 = f1_score(labels, answers, labels=np.unique(labels), average="macro")
    return {"accuracy": float((answers == labels).mean()), "macro_f1": float(macro_f1)}
