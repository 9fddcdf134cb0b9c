"""Laws of the baselines of texts: chances as reckoned by hand, words of train alone, a reason where one is left out."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from seqtrain.data.preprocess import Rows, prepare_rows
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import Word
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


def test_a_toy_example() -> None:
    train = spaced(["ab", "ab", "ba", "c"])
    labels = np.array([0, 0, 1, 1])
    # "ab" and "ba" hold the same letters: only the pair of neighbours tells them apart
    assert naive_bayes(train, labels, spaced(["ab", "ba", "c", ""]), 2).tolist() == [0, 1, 1, 0]


@pytest.mark.long
def test_on_sst_it_is_right_of_82_percent(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "sst2"
    paths = {"validation_path": str(folder / "dev.tsv"), "test_path": str(folder / "test.tsv")}
    source = Text(path=str(folder / "train.tsv"), column="sentence", label_column="label", **paths)
    source.check()
    made, rows = prepare_rows(source, Word(), ["train", "test"], source.fields, cache=tmp_path, say=lambda line: None)
    train, test = rows["train"], rows["test"]
    assert train.labels is not None
    assert test.labels is not None
    found = naive_bayes(train.texts("text"), train.labels, test.texts("text"), len(made.labels))
    assert (found == test.labels).mean() == pytest.approx(0.82, abs=0.01)


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
