"""Synthetic sentences whose pronoun refers to one of two earlier nouns; only a word after the pronoun decides which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.synthetic import NOT_ASKED, Generated, phrases


class Scene(NamedTuple):
    """Words of one kind of sentence."""

    first: list[str]
    verb: str
    second: list[str]
    of_first: list[str]  # adjectives, if the pronoun refers to the first noun
    of_second: list[str]  # adjectives, if it refers to the second noun


THINGS = phrases("trophy, lamp, vase, drum, globe, clock, kettle, statue")
CASES = phrases("suitcase, box, bag, drawer, crate, basket, cupboard, chest")
# No adjective belongs to the same side in every scene, so the verb matters, too.
SCENES = (
    Scene(
        phrases("dog, horse, cow, fox, goat, child, soldier, hiker"),
        "did not cross",
        phrases("street, river, field, bridge, valley, bog, square, lake"),
        phrases("tired, small, weak, old"),
        phrases("wide, long, busy, dark"),
    ),
    Scene(THINGS, "did not fit into", CASES, phrases("big, wide, long, heavy"), phrases("small, narrow, weak, old")),
    Scene(CASES, "did not hold", THINGS, phrases("small, narrow, weak, old"), phrases("big, wide, long, heavy")),
    Scene(THINGS, "fell through", CASES, phrases("heavy, big, long, old"), phrases("weak, narrow, small, wide")),
)
OPENINGS = ["", "", "they say", "yesterday", "as i recall ,", "last winter", "we heard that", "in the story"]
ASIDES = ["", "", ", i think ,", "by far", ", in the end ,", "simply", "as always", ", sadly ,"]
ENDINGS = ["", "", "that day", "for us", "at last", "once more", "this time", "in may"]
ANSWERS = ("first", "second")


@dataclass(kw_only=True, eq=False)
class Pronoun(Generated):
    """Sentences in pairs that differ in one word after `it`; this word decides to which noun `it` refers.

    A sentence's label has a word for each of its words: `first` or `second` for the pronoun, `_` for the rest. A model
    that reads from left to right gives the same answer for both sentences of a pair, so exactly half of its answers are
    correct. Both are in the same split. Such a pair is a Winograd schema (Levesque et al. 2012).
    """

    size: int = 4000

    label_kind = "names"
    document = "a sentence"
    called = "pronoun"
    in_set = len(ANSWERS)

    def draw(self, generator: SplitMix64) -> tuple[Row, Row]:
        """Draw two sentences that differ in one word, in random order."""
        # The order of the choices must not change: each one depends on the state of the generator.
        scene = generator.choice(SCENES)
        start = f"{generator.choice(OPENINGS)} the {generator.choice(scene.first)} {scene.verb}"
        start += f" the {generator.choice(scene.second)} because"
        behind = f"was {generator.choice(ASIDES)} too"
        words = generator.choice(scene.of_first), generator.choice(scene.of_second)
        ending = generator.choice(ENDINGS)
        rows = []
        for word, answer in zip(words, ANSWERS, strict=True):
            after = f"{behind} {word} {ending}".split()
            labels = [NOT_ASKED] * len(start.split()) + [answer] + [NOT_ASKED] * len(after)
            rows.append({"text": " ".join([*start.split(), "it", *after]), "label": " ".join(labels)})
        one = generator.below(len(rows))  # otherwise the first sentence would always refer to the first noun
        return rows[one], rows[1 - one]
