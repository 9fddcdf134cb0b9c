"""Multi-query associative recall: pairs of key and value, and later each key again, whose answer is its value."""

from __future__ import annotations

from dataclasses import dataclass

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.synthetic import NOT_ASKED, Synthetic
from seqtrain.errors import UserError

WEIGHT_BITS = 40  # of a weight as an integer: sums of integers are the same on every machine


@dataclass(kw_only=True, eq=False)
class Recall(Synthetic):
    """Pairs first, then questions among random words, as Zoology defines it (Arora et al. 2023).

    Keys are of the lower half of the vocabulary, values of the upper one, and all of a sequence differ. A key comes
    again at one of the even places behind the pairs; place g, from 1, is drawn with a weight of g ** (power - 1). Its
    label is the value of its pair. Every other word is drawn from the whole vocabulary.

    Attributes:
        vocab: Number of words; lengths are in words, including pairs and questions.
        pairs: Pairs of a sequence.
        power: 1 draws the places of questions uniformly; 0 draws places soon after the pairs more often.
    """

    shortest: int = 64
    longest: int = 64
    vocab: int = 256
    pairs: int = 4
    power: float = 0.01

    called = "recall"

    def __post_init__(self) -> None:
        """Check the sizes; raise UserError if `vocab` has too few keys or values for `pairs`."""
        if self.vocab // 2 - 1 < self.pairs:  # 0 is no key
            raise UserError(
                f"data.vocab={self.vocab}: has too few keys for data.pairs={self.pairs}; give {2 * self.pairs + 2} or "
                "more"
            )
        # Two words for each pair, and as many for each question.
        self.least = 4 * self.pairs
        super().__post_init__()

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        half = self.vocab // 2
        keys = _sample(generator, 1, half, self.pairs)
        values = _sample(generator, half, self.vocab, self.pairs)
        # All at random first, keys and values among them: that a word is a key does not make it a question.
        words = [generator.below(self.vocab) for _ in range(length)]
        labels = [NOT_ASKED] * length
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            words[2 * place], words[2 * place + 1] = key, value
        # Only behind all pairs, so that no key is asked for before its value was shown.
        behind = 2 * self.pairs
        gaps = self._gaps(generator, (length - behind) // 2)
        for key, value, gap in zip(keys, values, gaps, strict=True):
            at = behind + 2 * gap
            words[at] = key
            labels[at] = f"w{value}"
        return [f"w{word}" for word in words], labels

    def _gaps(self, generator: SplitMix64, places: int) -> list[int]:
        """Draw a place for each question, from 0, without replacement."""
        weights = {}
        # Integers at least 1, so that the far places of a long sequence can still be drawn.
        for place in range(places):
            weights[place] = max(1, round((place + 1) ** (self.power - 1) * 2**WEIGHT_BITS))
        gaps = []
        for _ in range(self.pairs):
            gaps.append(_weighted(generator, weights))
            # Without replacement: two questions in one place would be one.
            del weights[gaps[-1]]
        return gaps

    def chance(self) -> float:
        """Return the accuracy of a model that knows the values of a sequence, but not their keys."""
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
    while len(found) < count:  # there are far more than are drawn
        number = low + generator.below(high - low)
        if number not in found:
            found.append(number)
    return found
