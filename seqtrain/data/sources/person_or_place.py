"""Synthetic sentences in which a later verb decides whether names are persons or places, with BIO labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.synthetic import Generated, phrases

NAMES = phrases("""
boston, paris, jordan, florence, sydney, austin, dallas, madison, lincoln, jackson, houston, orlando, lancaster,
carolina, adelaide, victoria, alexandria, charlotte, geneva, chelsea, kingston, preston, clifton, milton, ashton,
denver, phoenix, savannah
""")
SECOND_NAMES = phrases("hill, wells, forest, church, lake, field, brooks, rivers, stone, park, west, bridge")
# Verbs of a person and of a place; both follow the same words.
VERBS = [
    ("smiled", "flooded"),
    ("laughed", "burned"),
    ("married", "froze"),
    ("slept", "thawed"),
    ("wept", "expanded"),
    ("sang", "emptied"),
    ("retired", "shook"),
    ("whispered", "prospered"),
]
OPENINGS = ["", "", "", "yesterday", "last week ,", "they say", "we heard that", "in the story", "as i recall ,"]
LINKS = ["and", "and then", "or", "but not", "with"]
ASIDES = ["", "", "", "quite suddenly", ", i am told ,", "at last", "once more", ", in the end ,"]
CLOSINGS = ["", "", "in may", "for two days", "again", "before noon", "while we waited", "that winter"]
KINDS = ("PER", "LOC")


@dataclass(kw_only=True, eq=False)
class PersonOrPlace(Generated):
    """Sentences in pairs that differ only in the verb: all names of one are persons, those of the other are places.

    A model that reads from left to right reads each name before the verb. It gives both sentences of a pair the same
    labels up to the verb, so exactly half of its names are correct. Both sentences of a pair are in the same split.
    """

    size: int = 4000

    label_kind = "names"
    document = "a sentence"
    called = "person_or_place"
    in_set = 2

    def draw(self, generator: SplitMix64) -> tuple[Row, Row]:
        """Draw two sentences that differ in the verb, and so in the type of their names."""
        words: list[str] = generator.choice(OPENINGS).split()
        labels = ["O"] * len(words)
        # The order of the choices must not change: each one depends on the state of the generator.
        for number in range(1 + generator.below(3)):
            link = generator.choice(LINKS).split() if number else []
            name = [generator.choice(NAMES)]
            # Names have one or two words, so a model must also find where a span ends.
            if generator.below(2):
                name.append(generator.choice(SECOND_NAMES))
            words += [*link, *name]
            labels += ["O"] * len(link) + ["B-{}"] + ["I-{}"] * (len(name) - 1)
        aside = generator.choice(ASIDES).split()
        verbs = generator.choice(VERBS)
        closing = generator.choice(CLOSINGS).split()
        words += aside
        after = ["O"] * (len(aside) + 1 + len(closing))
        # Both sentences have the same words and labels except the verb and the types.
        two = []
        for verb, kind in zip(verbs, KINDS, strict=True):
            written = " ".join([*words, verb, *closing])
            two.append({"text": written, "label": " ".join([*labels, *after]).format(*[kind] * len(words))})
        first = generator.below(2)  # otherwise the first sentence of a pair would always have persons
        return two[first], two[1 - first]

    def keys(self, rows: Sequence[Row]) -> set[str]:
        """Return the words before the verb, which both sentences begin with."""
        one, other = (row["text"].split() for row in rows)
        verb = next(place for place, pair in enumerate(zip(one, other, strict=True)) if len(set(pair)) == 2)
        return {" ".join(one[:verb])}
