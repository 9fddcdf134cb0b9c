"""Laws of the baselines: they equal their definitions, written out slowly."""

from __future__ import annotations

import lzma
import math
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.corpus import Corpus
from seqtrain.tasks.baselines import counts
from seqtrain.tasks.baselines.counts import baselines, xz_baselines
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


@pytest.mark.parametrize("top", [VOCABULARY, 4])  # with 4, validation meets contexts that training never saw
def test_unigram_and_bigram_equal_the_slow_definition(tmp_path, top):
    train, split = corpus(1, [40, 1, 30], top), corpus(2, [20, 13])
    found = baselines(train, split, VOCABULARY, print, cache=tmp_path)
    unigram, bigram = slow_bigram(train, split)
    assert found["uniform"]["loss"] == pytest.approx(math.log(VOCABULARY), abs=1e-12)
    assert found["unigram"]["loss"] == pytest.approx(unigram, abs=1e-12)
    assert found["bigram"]["loss"] == pytest.approx(bigram, abs=1e-12)
    assert all(v["bits_per_byte"] == pytest.approx(v["loss"] / math.log(2) / 3) for v in found.values())


def test_bigram_probabilities_sum_to_one(tmp_path):
    train = corpus(1, [50], 5)
    for context in range(VOCABULARY):
        after = [Corpus(np.array([context, t], np.uint16), np.array([0, 2]), 1, 0, 0, "") for t in range(VOCABULARY)]
        alone = Corpus(np.array([context], np.uint16), np.array([0, 1]), 1, 0, 0, "")
        first = baselines(train, alone, VOCABULARY, print, cache=tmp_path)["bigram"]["loss"]
        losses = [
            2 * baselines(train, pair, VOCABULARY, print, cache=tmp_path)["bigram"]["loss"] - first for pair in after
        ]
        assert sum(math.exp(-loss) for loss in losses) == pytest.approx(1, abs=1e-9)


def test_baselines_are_kept_and_other_tokens_are_measured_anew(tmp_path):
    train, split = corpus(1, [50]), corpus(2, [20])
    first = baselines(train, split, VOCABULARY, print, cache=tmp_path)
    assert baselines(train, split, VOCABULARY, print, cache=tmp_path) == first
    assert len([p for p in (tmp_path / "json").iterdir() if p.is_dir()]) == 1
    assert baselines(train, train, VOCABULARY, print, cache=tmp_path) != first


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_text_that_is_read_in_pieces_has_the_same_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    train, split = corpus(1, [40, 1, 0, 30]), corpus(2, [20, 13])
    monkeypatch.setattr(counts, "PAIRS", piece)
    found = baselines(train, split, VOCABULARY, print, cache=tmp_path)
    unigram, bigram = slow_bigram(train, split)
    assert found["unigram"]["loss"] == pytest.approx(unigram, abs=1e-12)
    assert found["bigram"]["loss"] == pytest.approx(bigram, abs=1e-12)


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
    assert said == ["the bigram is an estimate: of 11 tokens not all pairs can be told apart"]


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


def test_what_xz_makes_is_given_a_second_time_without_reading_the_text(tmp_path):
    train, split = text_of(["hello world, " * 50]), text_of(["hello moon"])
    found = xz_baselines(train, split, print, cache=tmp_path)

    def unreadable():
        raise AssertionError("the text was read again")

    again = [replace(text, documents=unreadable) for text in (train, split)]
    assert xz_baselines(again[0], again[1], print, cache=tmp_path) == found


def test_xz_given_train_is_the_difference_that_the_text_makes(tmp_path):
    train, split = ["hello world, " * 50, "Łódź\n"], ["hello world, hello moon\n"]
    found = xz_baselines(text_of(train), text_of(split), print, cache=tmp_path)
    a, b = "".join(train).encode(), "".join(split).encode()
    assert found["xz"]["bits_per_byte"] == 8 * len(lzma.compress(b, preset=9)) / len(b)
    difference = len(lzma.compress(a + b, preset=9)) - len(lzma.compress(a, preset=9))
    assert found["xz_given_train"]["bits_per_byte"] == 8 * difference / len(b)


def test_xz_says_once_that_a_long_text_takes_time(tmp_path, monkeypatch):
    monkeypatch.setattr(counts, "LONG", 100)
    said: list[str] = []
    for length in (90, 200, 200):  # short; long; long, and in the cache
        xz_baselines(text_of(["a" * length]), text_of(["b"]), said.append, cache=tmp_path)
    assert said == ["xz: compresses 0 MB twice; the cache keeps the result"]


def test_text_over_the_limit_is_not_compressed(tmp_path):
    assert xz_baselines(text_of(["a" * 10]), text_of(["b"]), print, 10, cache=tmp_path) == {}
    assert not list(tmp_path.iterdir())
