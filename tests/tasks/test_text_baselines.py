"""Laws of the baselines of texts: chances as reckoned by hand, words of train alone, a reason where one is left out."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from seqtrain.data.preprocess import Rows
from seqtrain.tasks.baselines import texts as module
from seqtrain.tasks.baselines.texts import NEEDED, left_out, naive_bayes, tfidf_linear
from seqtrain.tasks.sentiment import Sentiment


def spaced(texts: list[str]) -> list[str]:
    """A letter is a word."""
    return [" ".join(text) for text in texts]


def by_hand(train: list[str], labels: list[int], text: str, label: int) -> float:
    """log p(label) + the sum of log p(feature | label), features counted once a document and smoothed by one."""

    def features(text: str) -> set[str]:
        return {*text, *(one + two for one, two in pairwise(text))}

    known = set().union(*map(features, train))
    mine = [features(text) for text, given in zip(train, labels, strict=True) if given == label]
    counts = {feature: 1 + sum(feature in each for each in mine) for feature in known}
    total = sum(counts.values())
    return math.log(len(mine) + 1) + sum(math.log(counts[it] / total) for it in features(text) & known)


def test_the_likeliest_label_is_the_one_reckoned_by_hand() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        train, asked = (["".join(rng.choice(list("abcde"), rng.integers(0, 6))) for _ in range(8)] for _ in range(2))
        labels = [0, 1, 2, *rng.integers(0, 3, 5).tolist()]
        train[0] += "a"  # some text there must be
        found = naive_bayes(spaced(train), np.array(labels), spaced([*asked, "zz"]), 3)
        for text, label in zip([*asked, "zz"], found, strict=True):
            probs = [by_hand(train, labels, text, each) for each in range(3)]
            assert probs[label] == pytest.approx(max(probs), rel=1e-12)


LABELS = np.array([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("train", "labels", "asked", "expected"),
    [
        (  # pairs of neighbours tell apart what the same words do not
            ["not good but bad", "bad not good", "not bad but good", "good not bad"] * 5,
            [0, 0, 1, 1] * 5,
            ["so not good and bad", "so not bad and good"],
            [0, 1],
        ),
        (["dull", "dull film", "fine", "fine film"], [0, 0, 1, 1], ["dull!", "FINE."], [0, 1]),
        (["red", "green", "blue"], [0, 1, 2], ["blue", "red", "green"], [2, 0, 1]),
    ],
)
def test_the_linear_baseline_tells_words_and_their_pairs_apart(
    train: list[str], labels: list[int], asked: list[str], expected: list[int]
) -> None:
    assert left_out(train) is None
    assert tfidf_linear(train, np.array(labels), asked).tolist() == expected


def test_where_the_linear_baseline_cannot_be_fitted_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "train has no word" in str(left_out(["  ", "", "\n", " "]))
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)
    assert "more than 0 million" in str(left_out(["a" * 9, "b", "c", "d"]))


def test_without_scikit_learn_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    rows = Rows({}, LABELS, lambda: iter([{"text": text} for text in "abcd"]))
    made: Any = SimpleNamespace(labels=("bad", "good"))
    said: list[str] = []
    found = Sentiment.baselines(cast(Any, None), rows, rows, made, said.append)
    assert found.keys() == {"majority", "naive_bayes"}
    assert said == [f"baseline linear is left out: {NEEDED}"]
