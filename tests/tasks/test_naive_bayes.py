"""Laws of the naive Bayes baseline: the chances are those reckoned by hand, and on SST it is what it is known to be."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import Word
from seqtrain.tasks.baselines.naive_bayes import naive_bayes


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
