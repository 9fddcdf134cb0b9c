"""Laws of the baselines: they equal their definitions, written out slowly."""

from __future__ import annotations

import lzma
import math
from collections import Counter

import numpy as np
import pytest

from seqtrain.data.corpus import Corpus
from seqtrain.tasks.baselines.counts import baselines, xz_baselines

VOCABULARY = 11


def corpus(seed: int, lengths: list[int], top: int = VOCABULARY) -> Corpus:
    tokens = np.random.default_rng(seed).integers(top, size=sum(lengths)) ** 2 % top
    return Corpus(tokens.astype(np.uint16), np.cumsum([0, *lengths]), 3 * sum(lengths), 0, 0, str(seed))


def documents(of: Corpus) -> list[list[int]]:
    return [of.tokens[a:b].tolist() for a, b in zip(of.documents[:-1], of.documents[1:], strict=True)]


def slow_bigram(train: Corpus, split: Corpus) -> tuple[float, float]:
    """Mean negative log-probabilities under unigram and bigram."""
    single, pairs = Counter(train.tokens.tolist()), Counter[tuple[int, int]]()
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
    found = baselines(train, split, VOCABULARY, cache=tmp_path)
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
        first = baselines(train, alone, VOCABULARY, cache=tmp_path)["bigram"]["loss"]
        losses = [2 * baselines(train, pair, VOCABULARY, cache=tmp_path)["bigram"]["loss"] - first for pair in after]
        assert sum(math.exp(-loss) for loss in losses) == pytest.approx(1, abs=1e-9)


def test_baselines_are_kept_and_other_tokens_are_measured_anew(tmp_path):
    train, split = corpus(1, [50]), corpus(2, [20])
    first = baselines(train, split, VOCABULARY, cache=tmp_path)
    assert baselines(train, split, VOCABULARY, cache=tmp_path) == first
    assert len([p for p in (tmp_path / "json").iterdir() if p.is_dir()]) == 1
    assert baselines(train, train, VOCABULARY, cache=tmp_path) != first


def test_xz_given_train_is_the_difference_that_the_text_makes(tmp_path):
    train, split = ["hello world, " * 50, "Łódź\n"], ["hello world, hello moon\n"]
    found = xz_baselines(lambda: iter(train), lambda: iter(split), cache=tmp_path)
    a, b = "".join(train).encode(), "".join(split).encode()
    assert found["xz"]["bits_per_byte"] == 8 * len(lzma.compress(b, preset=9)) / len(b)
    difference = len(lzma.compress(a + b, preset=9)) - len(lzma.compress(a, preset=9))
    assert found["xz_given_train"]["bits_per_byte"] == 8 * difference / len(b)


def test_text_over_the_limit_is_not_compressed(tmp_path):
    assert xz_baselines(lambda: iter(["a" * 10]), lambda: iter(["b"]), 10, cache=tmp_path) == {}
    assert not list(tmp_path.iterdir())
