"""Laws of the sentences with a pronoun: only where its noun stands in the sentence tells which pronoun it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import pytest

from seqtrain.data.sources.agreement import ASKED, NOUNS, OTHER, PREPOSITIONS, PRONOUNS, RIGHT, Agreement
from seqtrain.data.sources.base import SPLITS

KIND = {noun: pronoun for pronoun, nouns in NOUNS.items() for noun in nouns}


@cache
def rows(split, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    source = Agreement(seed=seed)
    source.check()
    return [(row["text"].split(" "), row["label"].split(" ")) for row in source.rows(split)]


def full(split) -> list[tuple[list[str], list[str]]]:
    """The sentences with all four nouns."""
    return [(words, label) for words, label in rows(split) if label.count(OTHER) == 3]


def bag(words: list[str]) -> str:
    return " ".join(sorted(word for word in words if word not in PRONOUNS))


@pytest.mark.parametrize("split", SPLITS)
def test_the_pronoun_is_that_of_the_noun_that_is_named_the_right_one(split):
    for words, label in rows(split):
        assert len(words) == len(label)
        count = label.count(OTHER)
        assert count in range(4)
        assert Counter(label) == Counter({"_": len(words) - 2 - count, RIGHT: 1, OTHER: count, ASKED: 1})
        kinds = [KIND[word] for word in words if word in KIND]
        assert len(set(kinds)) == len(kinds)
        assert KIND[words[label.index(RIGHT)]] == words[label.index(ASKED)]
        assert {place for place, word in enumerate(words) if word in KIND} == {
            place for place, kind in enumerate(label) if kind in (RIGHT, OTHER)
        }
        assert [word for word in words if word in PRONOUNS] == [words[label.index(ASKED)]]


def test_the_other_nouns_stand_behind_a_preposition_and_the_right_one_does_not():
    for words, label in rows("train"):
        for place, kind in enumerate(label):
            if kind in (RIGHT, OTHER):
                assert words[place - 1] == "the"
                before = words[place - 2] if place > 1 else ","
                assert before == "," if kind == RIGHT else before in PREPOSITIONS


@pytest.mark.parametrize("split", SPLITS)
def test_a_bag_of_the_other_words_comes_with_each_pronoun_once(split):
    pronouns = defaultdict(list)
    for words, label in full(split):
        pronouns[bag(words)].append(words[label.index(ASKED)])
    assert all(sorted(found) == sorted(PRONOUNS) for found in pronouns.values())


def test_no_bag_is_in_two_splits_and_four_that_follow_one_another_are_alike_but_for_their_nouns():
    bags = [{bag(words) for words, _ in rows(split)} for split in SPLITS]
    assert len(set.union(*bags)) == sum(map(len, bags))
    for split in SPLITS:
        frames = [" ".join(word for word in words if word not in KIND | NOUNS) for words, _ in rows(split)]
        assert len(frames) % 4 == 0
        for at in range(0, len(frames), 4):
            assert len(set(frames[at : at + 4])) == 1
            assert len({" ".join(words) for words, _ in rows(split)[at : at + 4]}) == 4


def test_half_of_the_sentences_have_all_four_nouns_and_some_have_one():
    counts = Counter(label.count(OTHER) for _, label in rows("train"))
    assert 0.45 < counts[3] / counts.total() < 0.6
    assert min(counts.values()) > 0.05 * counts.total()


def test_no_noun_that_stands_first_or_last_or_nearest_tells_the_pronoun():
    for order in (0, 1, 2, 3):
        right = 0
        for words, label in full("train"):
            nouns = [word for word in words if word in KIND]
            right += KIND[nouns[order]] == words[label.index(ASKED)]
        assert 0.22 < right / len(full("train")) < 0.28


def test_the_pronoun_stands_many_words_behind_its_noun():
    distances = [label.index(ASKED) - label.index(RIGHT) for _, label in full("train")]
    assert min(distances) >= 3
    assert sum(distances) / len(distances) > 8
