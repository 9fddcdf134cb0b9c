"""Laws of the linear baseline: it knows words and neighbours of train alone, and says why where it is left out."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from seqtrain.tasks.baselines import tfidf_linear as module
from seqtrain.tasks.baselines.tfidf_linear import NEEDED, tfidf_linear

LABELS = np.array([0, 0, 1, 1])


def answers(train: list[str], labels: np.ndarray, asked: list[str]) -> tuple[list[int] | None, list[str]]:
    """What the baseline answers, and what it says."""
    said: list[str] = []
    found = tfidf_linear(train, labels, asked, said.append)
    return (None if found is None else found.tolist()), said


def test_pairs_of_neighbours_tell_apart_what_the_same_words_do_not() -> None:
    train = ["not good but bad", "bad not good", "not bad but good", "good not bad"] * 5
    found, said = answers(train, np.tile(LABELS, 5), ["so not good and bad", "so not bad and good"])
    assert found == [0, 1]
    assert said == []


def test_punctuation_does_not_hide_a_word() -> None:
    assert answers(["dull", "dull film", "fine", "fine film"], LABELS, ["dull!", "FINE."])[0] == [0, 1]


def test_three_labels_are_told_apart() -> None:
    assert answers(["red", "green", "blue"], np.array([0, 1, 2]), ["blue", "red", "green"])[0] == [2, 0, 1]


@pytest.mark.parametrize(
    ("train", "reason"),
    [(["  ", "", "\n", " "], "train has no word"), (["a" * 9, "b", "c", "d"], "more than 0 million")],
)
def test_where_it_cannot_be_fitted_it_says_so(train: list[str], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)
    found, (line,) = answers(train, LABELS, ["a"])
    assert found is None
    assert line.startswith("baseline linear is left out: ")
    assert reason in line


def test_without_scikit_learn_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    assert answers(["a", "b", "c", "d"], LABELS, ["a"]) == (None, [f"baseline linear is left out: {NEEDED}"])
