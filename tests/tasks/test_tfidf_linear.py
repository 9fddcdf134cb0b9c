"""Laws of the linear baseline: it knows words and neighbours of train alone, and says why where it is left out."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from seqtrain.data.preprocess import Rows
from seqtrain.tasks.baselines import tfidf_linear as module
from seqtrain.tasks.baselines.tfidf_linear import NEEDED, left_out, tfidf_linear
from seqtrain.tasks.sentiment import Sentiment

LABELS = np.array([0, 0, 1, 1])


def answers(train: list[str], labels: np.ndarray, asked: list[str]) -> list[int]:
    """Return what the baseline answers."""
    assert left_out(train) is None
    return tfidf_linear(train, labels, asked).tolist()


def test_pairs_of_neighbours_tell_apart_what_the_same_words_do_not() -> None:
    train = ["not good but bad", "bad not good", "not bad but good", "good not bad"] * 5
    assert answers(train, np.tile(LABELS, 5), ["so not good and bad", "so not bad and good"]) == [0, 1]


def test_punctuation_does_not_hide_a_word() -> None:
    assert answers(["dull", "dull film", "fine", "fine film"], LABELS, ["dull!", "FINE."]) == [0, 1]


def test_three_labels_are_told_apart() -> None:
    assert answers(["red", "green", "blue"], np.array([0, 1, 2]), ["blue", "red", "green"]) == [2, 0, 1]


@pytest.mark.parametrize(
    ("train", "reason"),
    [(["  ", "", "\n", " "], "train has no word"), (["a" * 9, "b", "c", "d"], "more than 0 million")],
)
def test_where_it_cannot_be_fitted_it_says_so(train: list[str], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)
    assert reason in str(left_out(train))


def test_without_scikit_learn_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    rows = Rows({}, LABELS, lambda: iter([{"text": text} for text in "abcd"]))
    made: Any = SimpleNamespace(labels=("bad", "good"))
    said: list[str] = []
    found = Sentiment.baselines(cast(Any, None), rows, rows, made, said.append)
    assert found.keys() == {"majority", "naive_bayes"}
    assert said == [f"baseline linear is left out: {NEEDED}"]
