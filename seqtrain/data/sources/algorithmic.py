"""Synthetic problems from the literature: parity, copying, induction heads, associative recall, words over a group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Literal

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.synthetic import NOT_ASKED, Generated, Synthetic, phrases
from seqtrain.errors import UserError

# -- parity of bits: is the number of ones odd? A network has to count modulo two --------------------------------------

PARITIES = ("even", "odd")


@dataclass(kw_only=True, eq=False)
class Parity(Synthetic):
    """Fair bits; the label of the last bit, or of each bit, is the parity of the ones so far.

    The lengths are those of the formal languages in the xLSTM paper (Beck et al. 2024), which ask at the end. Lengths
    are in bits.

    Attributes:
        asked: Bits that have a label: the last one, or every one.
    """

    size: int = 20000
    shortest: int = 3
    longest: int = 40
    test_shortest: int | None = 40
    test_longest: int | None = 256
    asked: Literal["end", "every"] = "end"

    called = "parity"

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        bits, labels, ones = [], [], 0
        for _ in range(length):
            bit = generator.below(2)
            ones += bit
            # The answer depends on all bits before it, not on a window of bits.
            bits.append(str(bit))
            labels.append(PARITIES[ones % 2])
        # Far harder: a long sequence gives only one bit of feedback, through all of its steps.
        if self.asked == "end":
            labels[:-1] = [NOT_ASKED] * (length - 1)
        return bits, labels

    def chance(self) -> float:
        return 1 / len(PARITIES)


# -- the copying task --------------------------------------------------------------------------------------------------

BLANK, ASK = ".", "?"


@dataclass(kw_only=True, eq=False)
class CopySymbols(Synthetic):
    """Symbols, blanks, and then as many questions as symbols; the first question asks for the first symbol.

    The layout is that of Hochreiter & Schmidhuber (1997), Arjovsky et al. (2016) and Bai et al. (2018): the length is
    the number of blanks. Only the questions have labels; those papers also score the blanks.

    Attributes:
        symbols: Number of symbols to repeat.
        alphabet: Number of different symbols.
    """

    shortest: int = 100
    longest: int = 100
    symbols: int = 10
    alphabet: int = 8

    called = "copy"

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        kept = []
        for _ in range(self.symbols):
            # Symbols may repeat, as in the papers: else the last ones could be inferred by elimination.
            kept.append(f"s{generator.below(self.alphabet)}")
        # All questions are equal: only the position after the blanks determines which symbol is asked for.
        words = [*kept, *[BLANK] * length, *[ASK] * self.symbols]
        return words, [*[NOT_ASKED] * (self.symbols + length), *kept]

    def chance(self) -> float:
        return 1 / self.alphabet


# -- induction heads ---------------------------------------------------------------------------------------------------

MARK = "?"


@dataclass(kw_only=True, eq=False)
class Induction(Synthetic):
    """Random words with a mark, and the mark again as the last word; its label is the word after the first mark.

    Defined as in Fu et al. (2022), and in Gu & Dao (2023), who train at 256 words and test at up to a million.

    Attributes:
        vocab: Number of different words without the mark; lengths are in words, including both marks.
    """

    shortest: int = 64
    longest: int = 64
    vocab: int = 16

    called = "induction"
    least = 3  # the mark, the word that follows it, and the mark again

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        words = []
        for _ in range(length):
            words.append(f"w{generator.below(self.vocab)}")
        place = generator.below(length - 2)  # so that a word other than the last mark follows it
        # The mark is not in the vocabulary: else one in sixteen words would be a question without an answer.
        words[place] = words[-1] = MARK
        return words, [*[NOT_ASKED] * (length - 1), words[place + 1]]

    def chance(self) -> float:
        return 1 / self.vocab


# -- multi-query associative recall ------------------------------------------------------------------------------------

WEIGHT_BITS = 40  # precision of integer weights: sums of integers are the same on every machine


@dataclass(kw_only=True, eq=False)
class Recall(Synthetic):
    """Pairs first, then questions among random words, as in Zoology (Arora et al. 2023).

    Keys come from the lower half of the vocabulary, values from the upper half, and all keys and values of a sequence
    are different. Each key is repeated at one of the even positions after the pairs; the g-th of these, from 1, is
    drawn with weight g ** (power - 1). The label of the repeated key is the value of its pair. Every other word is
    drawn from the whole vocabulary.

    Attributes:
        vocab: Number of words; lengths are in words, including pairs and questions.
        pairs: Pairs per sequence.
        power: 1 draws the positions of questions uniformly; 0 prefers positions soon after the pairs.
    """

    shortest: int = 64
    longest: int = 64
    vocab: int = 256
    pairs: int = 4
    power: float = 0.01

    called = "recall"

    def __post_init__(self) -> None:
        """Check the sizes; raise UserError if `vocab` has too few keys or values for `pairs`."""
        if self.vocab // 2 - 1 < self.pairs:  # 0 is not a key
            raise UserError(
                f"data.vocab={self.vocab}: has too few keys for data.pairs={self.pairs}; set it to at least "
                f"{2 * self.pairs + 2}"
            )
        # Two words for each pair, and as many for each question.
        self.least = 4 * self.pairs
        super().__post_init__()

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        half = self.vocab // 2
        keys = _sample(generator, 1, half, self.pairs)
        values = _sample(generator, half, self.vocab, self.pairs)
        # Fill all positions at random, including with keys and values: a key is not always a question.
        words = [generator.below(self.vocab) for _ in range(length)]
        labels = [NOT_ASKED] * length
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            words[2 * place], words[2 * place + 1] = key, value
        # Questions come after all pairs, so no key is asked for before its value was shown.
        behind = 2 * self.pairs
        gaps = self._gaps(generator, (length - behind) // 2)
        for key, value, gap in zip(keys, values, gaps, strict=True):
            at = behind + 2 * gap
            words[at] = key
            labels[at] = f"w{value}"
        return [f"w{word}" for word in words], labels

    def _gaps(self, generator: SplitMix64, places: int) -> list[int]:
        """Draw a position for each question, from 0, without replacement."""
        weights = {}
        # Integers of at least 1, so that the last positions of a long sequence can still be drawn.
        for place in range(places):
            weights[place] = max(1, round((place + 1) ** (self.power - 1) * 2**WEIGHT_BITS))
        gaps = []
        for _ in range(self.pairs):
            gaps.append(_weighted(generator, weights))
            # Without replacement: two questions at one position would be one.
            del weights[gaps[-1]]
        return gaps

    def chance(self) -> float:
        """Return the accuracy of a model that knows the values of a sequence but not their keys."""
        return 1 / self.pairs


def _weighted(generator: SplitMix64, weights: dict[int, int]) -> int:
    """Draw one of the keys, with a probability in proportion to its weight."""
    left = generator.below(sum(weights.values()))
    for place, weight in weights.items():
        if left < weight:
            return place
        left -= weight
    raise AssertionError("weights were not summed")


def _sample(generator: SplitMix64, low: int, high: int, count: int) -> list[int]:
    """Draw `count` different numbers from `low` to `high` - 1."""
    found: list[int] = []
    while len(found) < count:  # terminates soon: the range is far larger than `count`
        number = low + generator.below(high - low)
        if number not in found:
            found.append(number)
    return found


# -- words over a group ------------------------------------------------------------------------------------------------

Group = Literal["A5", "Z60", "S3"]
Element = tuple[int, ...]


@dataclass(kw_only=True, eq=False)
class GroupWords(Synthetic):
    """Uniformly drawn elements; each label is the product so far (Merrill, Petty & Sabharwal 2024).

    A5, the even permutations of five things, is the smallest group that is not solvable: no parallel network of
    constant depth is known to recognise its words. Z60, addition modulo 60, has as many elements and is commutative.
    S3, all permutations of three things, is the smallest group that is not commutative.

    Attributes:
        group: The group; lengths are in elements.
    """

    size: int = 20000
    shortest: int = 4
    longest: int = 32
    test_shortest: int | None = 4
    test_longest: int | None = 128
    group: Group = "A5"

    called = "group_words"

    @cached_property
    def _table(self) -> list[list[int]]:
        return _table(self.group)

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        words, labels = [], []
        product = 0  # the neutral element
        for _ in range(length):
            # Uniform elements make each product uniform, too: all answers are equally likely.
            element = generator.below(len(self._table))
            # Multiply from the right: in a group that is not commutative the model must learn the order.
            product = self._table[product][element]
            words.append(f"g{element}")
            labels.append(f"g{product}")
        return words, labels

    def chance(self) -> float:
        return 1 / len(self._table)


def _table(group: Group) -> list[list[int]]:
    """Return the table of products, as indices of elements; index 0 is the neutral element."""
    if group == "Z60":
        return [[(one + other) % 60 for other in range(60)] for one in range(60)]
    # The first permutation is the identity.
    if group == "S3":
        elements = list(permutations(range(3)))
    else:
        elements = [element for element in permutations(range(5)) if _is_even(element)]
    # At most 60 * 60 products, computed once: an example needs one look-up per word.
    numbers = {element: number for number, element in enumerate(elements)}
    table = []
    for one in elements:
        table.append([numbers[_after(other, one)] for other in elements])
    return table


def _after(second: Element, first: Element) -> Element:
    """Return the permutation that applies `first`, and then `second`."""
    return tuple(second[place] for place in first)


def _is_even(element: Element) -> bool:
    inversions = 0
    for place, value in enumerate(element):
        inversions += sum(later < value for later in element[place + 1 :])
    return inversions % 2 == 0


# -- sums in words -----------------------------------------------------------------------------------------------------

NUMBERS = phrases("""
zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen,
seventeen, eighteen, nineteen, twenty
""")
SIGNS = {"plus": 1, "minus": -1}


@dataclass(kw_only=True, eq=False)
class SpelledSums(Generated):
    """Distinct sums of numbers from 0 to 20; the label is the value of the sum, which may be negative.

    Attributes:
        terms: Maximum number of terms in a sum, at least 2.
    """

    size: int = 8000
    terms: int = 4

    label_kind = "number"
    document = "a sum"
    called = rows_called = "sums"

    def __post_init__(self) -> None:
        """Check the size; raise UserError if there are not that many sums."""
        super().__post_init__()
        # With four terms or more there are always enough distinct sums.
        if self.size > 30_000 and self.terms == 3:
            raise UserError(
                f"data.size={self.size}: there are fewer different sums with data.terms=3; increase data.terms"
            )

    def draw(self, generator: SplitMix64) -> tuple[Row]:
        first = generator.below(len(NUMBERS))
        words, values = [NUMBERS[first]], [first]
        # At least two terms: a single number is not a sum.
        for _ in range(1 + generator.below(self.terms - 1)):
            sign, number = generator.choice(list(SIGNS)), generator.below(len(NUMBERS))
            words += [sign, NUMBERS[number]]
            values += [values[-1], values[-1] + SIGNS[sign] * number]
        return ({"text": " ".join(words), "label": self.label(values)},)

    def label(self, values: list[int]) -> str:
        """Return the label of a sum. `values`: the value up to each word."""
        return str(values[-1])


class RunningSums(SpelledSums):
    """Sums of `SpelledSums`, with a label at each word: the value of the sum up to it."""

    label_kind = "numbers"

    def label(self, values: list[int]) -> str:
        return " ".join(map(str, values))
