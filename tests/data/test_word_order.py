"""Laws of the made-up reviews: equal bags, opposite labels, and nothing but order that tells them apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import pytest

from seqtrain.data.sources.base import SPLITS
from seqtrain.data.sources.word_order import FORMS, PAIRS, WORDS, WordOrder

FIRST = "the hotel looked confusing , never truly coherent , for a child"


@cache
def rows(split, seed: int = 0) -> list[tuple[list[str], str]]:
    source = WordOrder(seed=seed)
    source.check()
    return [(row["text"].split(" "), row["label"]) for row in source.rows(split)]


def bag(words: list[str]) -> str:
    return " ".join(sorted(words))


@pytest.mark.parametrize("split", SPLITS)
def test_every_bag_comes_twice_with_opposite_labels_so_a_bag_classifier_is_at_one_half(split):
    labels = defaultdict(list)
    for words, label in rows(split):
        labels[bag(words)].append(label)
    assert all(sorted(found) == ["negative", "positive"] for found in labels.values())


def test_no_bag_is_in_two_splits():
    bags = [{bag(words) for words, _ in rows(split)} for split in SPLITS]
    assert len(set.union(*bags)) == sum(map(len, bags)) == 4000


@pytest.mark.long
def test_no_bag_comes_again_however_many_sentences_are_made():
    texts = WordOrder(size=60_000, test_fraction=0.0).documents("train")
    assert set(Counter(bag(text.split()) for text in texts).values()) == {2}


def test_sizes_are_as_asked_and_sentences_are_6_to_20_words_in_lower_case():
    assert [len(rows(split)) for split in SPLITS] == [6400, 800, 800]
    for words, _ in rows("train"):
        assert len(words) in WORDS
        assert all(word and word == word.lower() for word in words)


def test_the_label_is_that_of_the_adjective_that_is_said_not_denied():
    sides = {word: label for pair in PAIRS for word, label in zip(pair, ("positive", "negative"), strict=True)}
    assert len(sides) == 2 * len(PAIRS)
    said_first = 0
    for words, label in rows("train"):
        first, second = (sides[word] for word in words if word in sides)
        assert {first, second} == {"positive", "negative"}
        said_first += first == label
    assert 0.45 < said_first / len(rows("train")) < 0.55
    assert sum(form.index("{yes}") < form.index("{no}") for form in FORMS) * 2 == len(FORMS)


@pytest.mark.parametrize("position", [*range(12), *range(-12, 0)])
def test_no_position_tells_the_label(position):
    def word(words: list[str]) -> str:
        return words[position] if -len(words) <= position < len(words) else ""

    seen = defaultdict(Counter)
    for words, label in rows("train"):
        seen[word(words)][label] += 1
    likeliest = {key: counts.most_common(1)[0][0] for key, counts in seen.items()}
    right = sum(likeliest.get(word(words), "") == label for words, label in rows("test"))
    assert right / len(rows("test")) < 0.56


def test_the_first_sentence_is_as_it_was():
    assert " ".join(rows("train")[0][0]) == FIRST
