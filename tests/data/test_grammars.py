"""Laws of the made-up sentences: what tells the answer does, and neither a bag of words nor a place tells it."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest

from seqtrain.data.sources.agreement import ASKED, NOUNS, OTHER, PREPOSITIONS, PRONOUNS, RIGHT, Agreement
from seqtrain.data.sources.algorithmic import SpelledSums
from seqtrain.data.sources.base import SPLITS, Split
from seqtrain.data.sources.person_or_place import PersonOrPlace
from seqtrain.data.sources.pronoun import ANSWERS, SCENES, Pronoun
from seqtrain.data.sources.word_order import FORMS, PAIRS, WORDS, WordOrder
from tests.support.refused import refusal

KIND = {noun: pronoun for pronoun, nouns in NOUNS.items() for noun in nouns}
GRAMMARS: dict[type[Any], str] = {
    Agreement: "a multiple of 4 from 4",
    PersonOrPlace: "an even number from 2",
    Pronoun: "an even number from 2",
    SpelledSums: "from 2",
    WordOrder: "an even number from 2",
}


@cache
def rows(grammar: type[Any], split: Split) -> list[tuple[list[str], list[str]]]:
    """Return words and labels of each sentence."""
    source = grammar()
    source.check()
    return [(row["text"].split(" "), row["label"].split(" ")) for row in source.rows(split)]


def bag(words: list[str], without: Any = ()) -> str:
    return " ".join(sorted(word for word in words if word not in without))


def test_sentences_depend_on_the_seed_only_and_documents_are_their_texts() -> None:
    for grammar in GRAMMARS:
        found = list(grammar(size=400, seed=1).rows("test"))
        assert found == list(grammar(size=400, seed=1).rows("test")), grammar
        assert found != list(grammar(size=400, seed=0).rows("test")), grammar
        assert list(grammar(size=400, seed=1).documents("test")) == [row["text"] for row in found], grammar


def test_a_size_that_cannot_be_made_or_split_is_refused() -> None:
    for grammar, multiple in GRAMMARS.items():
        for size in (0, -4, 200_000) if grammar is SpelledSums else (0, -4, 7, 200_000):
            assert f"data.size={size}: must be {multiple}" in refusal(grammar, size=size), grammar
        assert "2 rows cannot be split" in refusal(grammar(size=2 * grammar.in_set).check), grammar


# -- agreement: the pronoun of the right one of four nouns -------------------------------------------------------------


def full(split: Split) -> list[tuple[list[str], list[str]]]:
    """Return the sentences with all four nouns."""
    return [(words, label) for words, label in rows(Agreement, split) if label.count(OTHER) == 3]


def test_the_pronoun_is_that_of_the_one_noun_that_no_preposition_precedes() -> None:
    for words, label in rows(Agreement, "train") + rows(Agreement, "test"):
        assert len(words) == len(label)
        count = label.count(OTHER)
        assert count in range(4)
        assert Counter(label) == Counter({"_": len(words) - 2 - count, RIGHT: 1, OTHER: count, ASKED: 1})
        kinds = [KIND[word] for word in words if word in KIND]
        assert len(set(kinds)) == len(kinds)
        assert KIND[words[label.index(RIGHT)]] == words[label.index(ASKED)]
        assert label.index(ASKED) - label.index(RIGHT) >= 3
        assert [word for word in words if word in PRONOUNS] == [words[label.index(ASKED)]]
        for place, kind in enumerate(label):
            assert (words[place] in KIND) == (kind in (RIGHT, OTHER))
            if kind in (RIGHT, OTHER):
                assert words[place - 1] == "the"
                before = words[place - 2] if place > 1 else ","
                assert before == "," if kind == RIGHT else before in PREPOSITIONS


def test_no_bag_of_other_words_and_no_place_of_a_noun_tells_the_pronoun() -> None:
    for split in SPLITS:
        pronouns = defaultdict(list)
        for words, label in full(split):
            pronouns[bag(words, PRONOUNS)].append(words[label.index(ASKED)])
        assert all(sorted(found) == sorted(PRONOUNS) for found in pronouns.values()), split
    bags = [{bag(words, PRONOUNS) for words, _ in rows(Agreement, split)} for split in SPLITS]
    assert len(set.union(*bags)) == sum(map(len, bags))
    sentences = full("train")
    assert len(sentences) > 0.45 * len(rows(Agreement, "train"))
    for order in range(4):
        right = 0
        for words, label in sentences:
            nouns = [word for word in words if word in KIND]
            right += KIND[nouns[order]] == words[label.index(ASKED)]
        assert 0.22 < right / len(sentences) < 0.28, order


# -- pronoun: a later word decides what `it` means ---------------------------------------------------------------------


def test_two_sentences_differ_in_one_word_behind_the_pronoun_and_in_the_noun_that_it_means() -> None:
    for split in SPLITS:
        found = rows(Pronoun, split)
        for (one, first), (two, second) in zip(found[::2], found[1::2], strict=True):
            assert len(one) == len(first) == len(two)
            (place,) = (number for number, (mine, other) in enumerate(zip(one, two, strict=True)) if mine != other)
            it = one.index("it")
            assert place > it
            assert {first[it], second[it]} == set(ANSWERS)
            assert first[:it] + first[it + 1 :] == ["_"] * (len(one) - 1) == second[:it] + second[it + 1 :]
    texts = [" ".join(words) for split in SPLITS for words, _ in rows(Pronoun, split)]
    assert len(set(texts)) == len(texts) == 4000


def test_the_word_decides_together_with_the_verb() -> None:
    of_first = {word for scene in SCENES for word in scene.of_first}
    of_second = {word for scene in SCENES for word in scene.of_second}
    assert of_first - of_second <= {"tired"}
    assert not any(set(scene.of_first) & set(scene.of_second) for scene in SCENES)


# -- word order: equal bags, opposite labels ---------------------------------------------------------------------------


def test_every_bag_comes_twice_with_opposite_labels_and_in_one_split() -> None:
    bags: set[str] = set()
    for split in SPLITS:
        labels = defaultdict(list)
        for words, (label,) in rows(WordOrder, split):
            labels[bag(words)].append(label)
        assert all(sorted(found) == ["negative", "positive"] for found in labels.values()), split
        assert not bags & labels.keys()
        bags |= labels.keys()
    assert [len(rows(WordOrder, split)) for split in SPLITS] == [6400, 800, 800]
    assert len(bags) == 4000


@pytest.mark.long
def test_no_bag_comes_again_however_many_sentences_are_made():
    texts = WordOrder(size=60_000, test_fraction=0.0).documents("train")
    assert set(Counter(bag(text.split()) for text in texts).values()) == {2}


def test_the_label_is_that_of_the_adjective_that_is_said_not_denied() -> None:
    sides = {word: label for pair in PAIRS for word, label in zip(pair, ("positive", "negative"), strict=True)}
    assert len(sides) == 2 * len(PAIRS)
    said_first = 0
    for words, (label,) in rows(WordOrder, "train"):
        assert len(words) in WORDS
        assert all(word and word == word.lower() for word in words)
        first, second = (sides[word] for word in words if word in sides)
        assert {first, second} == {"positive", "negative"}
        said_first += first == label
    assert 0.45 < said_first / len(rows(WordOrder, "train")) < 0.55
    assert sum(form.index("{yes}") < form.index("{no}") for form in FORMS) * 2 == len(FORMS)
    first_words = " ".join(rows(WordOrder, "train")[0][0])
    assert first_words == "the hotel looked confusing , never truly coherent , for a child"  # as it was


def test_no_position_tells_the_label() -> None:
    for position in (*range(12), *range(-12, 0)):
        seen = defaultdict(Counter)
        for words, (label,) in rows(WordOrder, "train"):
            seen[_word(words, position)][label] += 1
        likeliest = {key: counts.most_common(1)[0][0] for key, counts in seen.items()}
        test = rows(WordOrder, "test")
        right = sum(likeliest.get(_word(words, position), "") == label for words, (label,) in test)
        assert right / len(test) < 0.56, position


def _word(words: list[str], position: int) -> str:
    return words[position] if -len(words) <= position < len(words) else ""
