"""Laws of the pronoun that a later word decides: what stands before it, and it, tell nothing."""

from __future__ import annotations

from functools import cache

import pytest

from seqtrain.data.sources.base import SPLITS, Split
from seqtrain.data.sources.pronoun import ANSWERS, SCENES, Pronoun

Sentence = tuple[list[str], list[str]]


@cache
def rows(split: Split, seed: int = 0) -> list[Sentence]:
    source = Pronoun(seed=seed)
    source.check()
    return [(row["text"].split(" "), row["label"].split(" ")) for row in source.rows(split)]


def pairs(split: Split) -> list[tuple[Sentence, Sentence]]:
    found = rows(split)
    return list(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("split", SPLITS)
def test_two_sentences_differ_in_one_word_behind_the_pronoun_and_in_the_noun_that_it_means(split: Split) -> None:
    for (one, first), (two, second) in pairs(split):
        assert len(one) == len(first) == len(two)
        (place,) = (number for number, (mine, other) in enumerate(zip(one, two, strict=True)) if mine != other)
        it = one.index("it")
        assert place > it
        assert {first[it], second[it]} == set(ANSWERS)
        assert first[:it] + first[it + 1 :] == ["_"] * (len(one) - 1) == second[:it] + second[it + 1 :]


def test_the_word_decides_together_with_the_verb() -> None:
    properties = {word for scene in SCENES for word in scene.of_first}
    for word in properties - {"tired"}:
        answers = {
            answer
            for scene in SCENES
            for answer, words in zip(ANSWERS, (scene.of_first, scene.of_second), strict=True)
            if word in words
        }
        assert answers == set(ANSWERS), word
    for scene in SCENES:
        assert not {*scene.of_first} & {*scene.of_second}


def test_no_sentence_is_in_two_splits_or_twice_in_one() -> None:
    texts = [" ".join(words) for split in SPLITS for words, _ in rows(split)]
    assert len(set(texts)) == len(texts) == 4000
