"""Synthetic sentences whose pronoun agrees with one of four earlier nouns; only structure determines which one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.synthetic import Generated, phrases

NOUNS = {
    "he": phrases("king, uncle, monk, prince"),
    "she": phrases("queen, aunt, nun, princess"),
    "it": phrases("lamp, cart, bell, boat"),
    "they": phrases("twins, guards, children, horses"),
}
PRONOUNS = tuple(NOUNS)
COUNTS = (1, 2, 3, 4, 4, 4)  # number of nouns in a sentence: half of the sentences have all four
PREPOSITIONS = phrases("near, behind, beside, below")  # a noun after one of these is not the subject
ASIDES = [*[""] * 3, ", i think ,", ", as we know ,"]
# No verb has a plural form, unlike `was` and `were`: only the pronoun agrees with the noun.
VERBS = phrases("stopped, fell, waited, arrived, vanished, shook, stayed, sank")
ENDINGS = phrases("""
came late, made noise, stood still, needed rest, looked weak, felt cold, fell asleep, moved fast
""")

RIGHT = "noun"  # labels of words
OTHER = "other"
ASKED = "pronoun"
NONE = "_"


@dataclass(kw_only=True, eq=False)
class Agreement(Generated):
    """Sentences in sets of four, which differ only in the positions of the nouns, and so in the pronoun near the end.

    A sentence has one to four nouns, each with a different pronoun (he, she, it, they). All nouns except one follow a
    preposition; the sentence's pronoun refers to the remaining one. With four nouns, each is the referent in one
    sentence of the set, so neither a bag of the other words nor a position determines the pronoun. Shorter sentences
    make the task learnable: with four nouns only, a model learns nothing for a long time, because no part of the
    solution lowers the loss by itself.

    The label has a word for each word of the sentence: `noun` for the referent, `other` for the other nouns, `pronoun`,
    and `_` for the rest. Long-distance agreement is tested as in Linzen et al. (2016).
    """

    size: int = 8000

    label_kind = "names"
    document = "a sentence"
    called = "agreement"
    in_set = len(PRONOUNS)

    def draw(self, generator: SplitMix64) -> list[Row]:
        """Draw four sentences with the same frame; each position has a different noun in each sentence."""
        nouns = []
        for pronoun in PRONOUNS:
            nouns.append((pronoun, generator.choice(NOUNS[pronoun])))
        nouns = generator.sample(nouns, len(nouns))
        words, subject = _draw_frame(generator)
        rows = []
        for turn in range(len(nouns)):
            # By rotation, each noun is in each position once.
            rows.append(_fill(words, nouns[turn:] + nouns[:turn], subject))
        return generator.sample(rows, len(rows))

    def keys(self, rows: Sequence[Row]) -> set[str]:
        """Return the bags of the words without the pronoun."""
        return {" ".join(sorted(word for word in row["text"].split() if word not in PRONOUNS)) for row in rows}


def _draw_frame(generator: SplitMix64) -> tuple[list[str], int]:
    """Draw a sentence with `{}` for nouns and pronoun; return it and the index of the pronoun's noun."""
    # The order of the choices must not change: each one depends on the state of the generator.
    count = generator.choice(COUNTS)
    subject = generator.below(count)
    parts: list[str] = []
    for place in range(count):
        if place != subject:
            parts.append(generator.choice(PREPOSITIONS))
        elif place:
            parts.append(",")
        parts += ["the", "{}"]
    parts += [generator.choice(ASIDES), generator.choice(VERBS), "because", "{}", generator.choice(ENDINGS)]
    return [*" ".join(parts).split()], subject


def _fill(words: list[str], nouns: list[tuple[str, str]], subject: int) -> Row:
    """Return a sentence with the first of the nouns filled in, and a label for each of its words."""
    count = words.count("{}") - 1
    fillers = []
    for place, (_, noun) in enumerate(nouns[:count]):
        fillers.append((noun, RIGHT if place == subject else OTHER))
    fillers.append((nouns[subject][0], ASKED))
    written: list[str] = []
    labels: list[str] = []
    for word in words:
        if word == "{}":
            word, label = fillers.pop(0)
        else:
            label = NONE
        written.append(word)
        labels.append(label)
    return {"text": " ".join(written), "label": " ".join(labels)}
