"""Made-up sentences whose pronoun agrees with one of four nouns before it, and only structure tells with which."""

from __future__ import annotations

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.generated import Generated
from seqtrain.data.sources.word_order import phrases
from seqtrain.errors import UserError

LARGEST = 100_000  # the grammar gives far more, but not quickly
NOUNS = {
    "he": phrases("king, uncle, monk, prince"),
    "she": phrases("queen, aunt, nun, princess"),
    "it": phrases("lamp, cart, bell, boat"),
    "they": phrases("twins, guards, children, horses"),
}
PRONOUNS = tuple(NOUNS)
# A noun behind one of these is not what the sentence is about.
COUNTS = (1, 2, 3, 4, 4, 4)  # of nouns in a sentence: half have all four
PREPOSITIONS = phrases("near, behind, beside, below")
ASIDES = [*[""] * 3, ", i think ,", ", as we know ,"]
# No verb shows a number, as `was` and `were` do: nothing but the pronoun agrees with the noun.
VERBS = phrases("stopped, fell, waited, arrived, vanished, shook, stayed, sank")
ENDINGS = phrases("""
came late, made noise, stood still, needed rest, looked weak, felt cold, fell asleep, moved fast
""")

RIGHT = "noun"  # labels of words
OTHER = "other"
ASKED = "pronoun"
NONE = "_"


class Agreement(Generated):
    """Sentences in fours, alike but for which noun stands where, and with it the pronoun near the end.

    A sentence has one to four nouns, each of another kind (he, she, it, they), and all but one of them stand behind a
    preposition: the pronoun is that of the one. Where there are four, each is meant in one sentence of the set, so that
    neither a bag of the other words nor a place tells the pronoun. Shorter sentences are what makes it learnable: of
    four nouns alone a model learns nothing for long, as no part of the way to the answer is of any use by itself.

    A sentence's label has a word for each of its words: which is the `noun`, which are the `other` nouns and the
    `pronoun`, and `_` for the rest. Long-distance agreement as Linzen et al. (2016) ask of a model.
    """

    label_kind = "names"
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
        """No sentence comes twice, and no bag of words, pronouns aside, in two sets of four nouns."""
        sets: list[list[Row]] = []
        seen: set[str] = set()
        while len(sets) < count:
            rows = _draw_set(generator)
            keys = {_bag(row["text"]) for row in rows}
            if not keys & seen:
                seen |= keys
                sets.append(rows)
        return sets


def _bag(text: str) -> str:
    """The words without the pronoun, in alphabetical order."""
    return " ".join(sorted(word for word in text.split() if word not in PRONOUNS))


def _draw_set(generator: SplitMix64) -> list[Row]:
    """Four sentences with one frame, in each of which another noun stands at each place."""
    nouns = []
    for pronoun in PRONOUNS:
        nouns.append((pronoun, generator.choice(NOUNS[pronoun])))
    nouns = generator.sample(nouns, len(nouns))
    words, subject = _draw_frame(generator)
    rows = []
    for turn in range(len(nouns)):
        # Turned once around, each noun stands in each place once.
        rows.append(_fill(words, nouns[turn:] + nouns[:turn], subject))
    return generator.sample(rows, len(rows))


def _draw_frame(generator: SplitMix64) -> tuple[list[str], int]:
    """A sentence with `{}` for its nouns and, last of all, the pronoun; and which of the nouns it means."""
    # In this order: what each choice gives depends on how many came before it.
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
    """A sentence with the first of the nouns, and what each of its words is."""
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
