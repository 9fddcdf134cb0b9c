"""Made-up sentences whose pronoun agrees with one of four nouns before it, and only structure tells with which."""

from __future__ import annotations

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.generated import Generated
from seqtrain.data.sources.word_order import phrases
from seqtrain.errors import UserError

LARGEST = 100_000  # the grammar gives far more, but not quickly
NOUNS = {
    "he": phrases("king, uncle, monk, prince, father, brother"),
    "she": phrases("queen, aunt, nun, princess, mother, sister"),
    "it": phrases("lamp, cart, bell, boat, clock, stone"),
    "they": phrases("twins, guards, dancers, children, horses, sailors"),
}
PRONOUNS = tuple(NOUNS)
# A noun behind one of these is not what the sentence is about.
PREPOSITIONS = phrases("near, behind, beside, above, below, before, after, opposite")
ADJECTIVES = ["", "", "", "old", "small", "tall", "famous", "quiet"]
ASIDES = [*[""] * 6, ", i think ,", ", as we know ,", ", i am told ,"]
# No verb shows a number, as `was` and `were` do: nothing but the pronoun agrees with the noun.
VERBS = phrases("stopped, fell, waited, arrived, vanished, shook, stayed, sank")
ENDINGS = phrases("""
came too late, made no sound, stood too long, needed rest, fell asleep, moved too fast, looked weak, felt cold
""")

RIGHT = "noun"  # labels of words
OTHER = "other"
ASKED = "pronoun"
NONE = "_"


class Agreement(Generated):
    """Sentences in fours: equal in all but which of their four nouns stands where, and in the pronoun at the end.

    Each has a noun of each kind (he, she, it, they), three of them behind a preposition. The pronoun is that of the
    fourth. Each noun is the fourth in one sentence of a set, so neither a bag of the other words nor a place tells
    the pronoun. A sentence's label has a word for each of its words: which is the `noun`, which the `other` nouns
    and the `pronoun`, and `_` for the rest. Long-distance agreement as Linzen et al. (2016) ask of a model.
    """

    document = "a sentence"
    called = "agreement"
    rows_called = "sentences"

    def __init__(
        self, *, size: int = 8000, seed: int = 0, validation_fraction: float = 0.1, test_fraction: float = 0.1
    ) -> None:
        """`size`: sentences in all splits together, a multiple of four; fractions are of them."""
        in_set = len(PRONOUNS)
        if size % in_set or not in_set <= size <= LARGEST:
            raise UserError(f"data.size={size}: must be a multiple of {in_set} from {in_set} to {LARGEST}")
        fractions = {"validation_fraction": validation_fraction, "test_fraction": test_fraction}
        super().__init__(size=size, seed=seed, in_set=in_set, **fractions)

    def draw(self, generator: SplitMix64, count: int) -> list[list[Row]]:
        """No bag of words, pronouns aside, comes in two sets."""
        by_bag: dict[str, list[Row]] = {}
        while len(by_bag) < count:
            bag, rows = _draw_set(generator)
            by_bag.setdefault(bag, rows)
        return list(by_bag.values())


def _draw_set(generator: SplitMix64) -> tuple[str, list[Row]]:
    """The words that the sentences of a set share, in alphabetical order, and the sentences."""
    nouns = []
    for pronoun in PRONOUNS:
        nouns.append((pronoun, generator.choice(NOUNS[pronoun])))
    nouns = generator.sample(nouns, len(nouns))
    words, subject = _draw_frame(generator)
    rows = []
    for turn in range(len(nouns)):
        # Turned once around, each noun stands in each place once.
        turned = nouns[turn:] + nouns[:turn]
        rows.append(_fill(words, turned, subject))
    shared = [word for word in rows[0]["text"].split() if word not in PRONOUNS]
    return " ".join(sorted(shared)), generator.sample(rows, len(rows))


def _draw_frame(generator: SplitMix64) -> tuple[list[str], int]:
    """A sentence with `{}` for nouns and for the pronoun at the end, and which of its nouns the pronoun means."""
    # In this order: what each choice gives depends on how many came before it.
    subject = generator.below(len(PRONOUNS))
    parts = []
    for place in range(len(PRONOUNS)):
        if place == subject:
            if place:
                parts.append(",")
        else:
            parts.append(generator.choice(PREPOSITIONS))
        parts += ["the", generator.choice(ADJECTIVES), "{}"]
    parts += [generator.choice(ASIDES), generator.choice(VERBS), "because {}", generator.choice(ENDINGS)]
    return " ".join(parts).split(), subject


def _fill(words: list[str], nouns: list[tuple[str, str]], subject: int) -> Row:
    """A sentence with its nouns, and what each word is."""
    fillers = []
    for place, (_, noun) in enumerate(nouns):
        fillers.append((noun, RIGHT if place == subject else OTHER))
    fillers.append((nouns[subject][0], ASKED))
    written, labels = [], []
    waiting = iter(fillers)
    for word in words:
        filler, label = next(waiting) if word == "{}" else (word, NONE)
        written.append(filler)
        labels.append(label)
    return {"text": " ".join(written), "label": " ".join(labels)}
