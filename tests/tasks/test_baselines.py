"""Laws of the baselines of texts: they equal their definitions, written out slowly."""

from __future__ import annotations

import lzma
import math
import sys
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Rows
from seqtrain.tasks.baselines import counts, texts
from seqtrain.tasks.baselines.counts import baselines, xz_baselines
from seqtrain.tasks.baselines.texts import NEEDED, left_out, naive_bayes, tfidf_linear
from seqtrain.tasks.sentiment import Sentiment
from tests.support.texts import text_of

VOCABULARY = 11


def corpus(seed: int, lengths: list[int], top: int = VOCABULARY) -> Corpus:
    tokens = np.random.default_rng(seed).integers(top, size=sum(lengths)) ** 2 % top
    return Corpus(tokens.astype(np.uint16), np.cumsum([0, *lengths]), 3 * sum(lengths), 0, 0, str(seed))


def documents(of: Corpus) -> list[list[int]]:
    return [of.tokens[a:b].tolist() for a, b in zip(of.documents[:-1], of.documents[1:], strict=True)]


def slow_bigram(train: Corpus, split: Corpus) -> tuple[float, float]:
    """Mean negative log-probabilities under unigram and bigram."""
    single, pairs = Counter(np.asarray(train.tokens).tolist()), Counter[tuple[int, int]]()
    for document in documents(train):
        pairs.update(zip([VOCABULARY, *document], document, strict=False))
    unigram, bigram = [], []
    for document in documents(split):
        for context, token in zip([VOCABULARY, *document], document, strict=False):
            base = (single[token] + 1) / (len(train.tokens) + VOCABULARY)
            after = {pair: count for pair, count in pairs.items() if pair[0] == context}
            seen = sum(after.values())
            discounted = max(after.get((context, token), 0) - 0.75, 0) / seen if seen else 0.0
            unigram.append(-math.log(base))
            bigram.append(-math.log(discounted + (0.75 * len(after) / seen if seen else 1) * base))
    return sum(unigram) / len(unigram), sum(bigram) / len(bigram)


@pytest.mark.parametrize(("top", "piece"), [(VOCABULARY, 1000), (VOCABULARY, 1), (4, 7)])
def test_unigram_and_bigram_equal_the_slow_definition(tmp_path, monkeypatch, top, piece):
    train, split = corpus(1, [40, 1, 0, 30], top), corpus(2, [20, 13])  # with 4, split has contexts unknown to train
    monkeypatch.setattr(counts, "PAIRS", piece)
    found = baselines(train, split, VOCABULARY, print, cache=tmp_path)
    unigram, bigram = slow_bigram(train, split)
    assert found["uniform"]["loss"] == pytest.approx(math.log(VOCABULARY), abs=1e-12)
    assert found["unigram"]["loss"] == pytest.approx(unigram, abs=1e-12)
    assert found["bigram"]["loss"] == pytest.approx(bigram, abs=1e-12)
    assert all(v["bits_per_byte"] == pytest.approx(v["loss"] / math.log(2) / 3) for v in found.values())


def test_baselines_are_kept_and_other_tokens_are_measured_anew(tmp_path):
    train, split = corpus(1, [50]), corpus(2, [20])
    first = baselines(train, split, VOCABULARY, print, cache=tmp_path)
    assert baselines(train, split, VOCABULARY, print, cache=tmp_path) == first
    assert len([p for p in (tmp_path / "json").iterdir() if p.is_dir()]) == 1
    assert baselines(train, train, VOCABULARY, print, cache=tmp_path) != first


def test_where_pairs_share_a_place_the_bigram_is_near_and_said_to_be_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, split = corpus(1, [400]), corpus(2, [90])
    monkeypatch.setattr(counts, "PAIRS", 40)
    said: list[str] = []
    exact = baselines(train, split, VOCABULARY, said.append, cache=tmp_path / "exact")["bigram"]["loss"]
    assert said == []
    monkeypatch.setattr(counts, "MOST_PAIRS", 97)  # for 132 pairs that there can be
    near = baselines(train, split, VOCABULARY, said.append, cache=tmp_path / "near")["bigram"]["loss"]
    assert near == pytest.approx(exact, rel=0.1)
    assert near != exact, "else nothing was shared"
    assert said == ["the bigram is an estimate: not all pairs of 11 tokens can be distinguished"]


def test_of_a_long_text_blocks_spread_over_all_of_it_are_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "PAIRS", 20)
    monkeypatch.setattr(counts, "MOST_TOKENS", 60)
    train, split, said = corpus(1, [20] * 10), corpus(2, [20, 13]), []
    counted = np.concatenate([train[block] for block in (0, 3, 6)]).astype(np.uint16)
    known = Corpus(counted, np.arange(0, 61, 20), 180, 0, 0, "counted")
    found = baselines(train, split, VOCABULARY, said.append, cache=tmp_path)
    unigram, bigram = slow_bigram(known, split)
    assert found["unigram"]["loss"] == pytest.approx(unigram, abs=1e-12)
    assert found["bigram"]["loss"] == pytest.approx(bigram, abs=1e-12)
    assert said == ["unigram and bigram: 60 tokens are counted, spread over the 200 of train"]
    said.clear()
    assert baselines(known, split, VOCABULARY, said.append, cache=tmp_path)["bigram"]["loss"] == pytest.approx(bigram)
    assert said == []


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "PAIRS", 1000)

    def peak(length: int) -> int:
        """Bytes that baselines of a text of so many tokens allocate at most."""
        train, split = corpus(1, [length]), corpus(2, [500])
        tracemalloc.start()
        baselines(train, split, VOCABULARY, print, cache=tmp_path / str(length))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2_000)  # what is imported and kept the first time
    assert peak(200_000) < 1.1 * peak(5_000)


def test_xz_given_train_is_the_difference_that_the_text_makes_and_is_kept(tmp_path, monkeypatch):
    train, split = ["hello world, " * 50, "Łódź\n"], ["hello world, hello moon\n"]
    a, b = "".join(train).encode(), "".join(split).encode()
    said: list[str] = []
    monkeypatch.setattr(counts, "LONG", len(a) - 1)
    found = xz_baselines(text_of(train), text_of(split), said.append, cache=tmp_path)
    assert found["xz"]["bits_per_byte"] == 8 * len(lzma.compress(b, preset=9)) / len(b)
    difference = len(lzma.compress(a + b, preset=9)) - len(lzma.compress(a, preset=9))
    assert found["xz_given_train"]["bits_per_byte"] == 8 * difference / len(b)

    def unreadable():
        raise AssertionError("the text was read again")

    again = [replace(text_of(text), documents=unreadable) for text in (train, split)]
    assert xz_baselines(again[0], again[1], said.append, cache=tmp_path) == found
    assert said == ["xz: compresses 0 MB twice; the cache keeps the result"]


# -- of labels, from words ---------------------------------------------------------------------------------------


def spaced(words: list[str]) -> list[str]:
    """A letter is a word."""
    return [" ".join(word) for word in words]


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
    monkeypatch.setattr(texts, "MAX_CHARACTERS", 10)
    assert "more than 0 million" in str(left_out(["a" * 9, "b", "c", "d"]))


def test_without_scikit_learn_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    rows = Rows({}, LABELS, lambda: iter([{"text": text} for text in "abcd"]))
    made: Any = SimpleNamespace(labels=("bad", "good"))
    said: list[str] = []
    found = Sentiment.baselines(cast(Any, None), rows, rows, made, said.append)
    assert found.keys() == {"majority", "naive_bayes"}
    assert said == [f"baseline linear is left out: {NEEDED}"]
