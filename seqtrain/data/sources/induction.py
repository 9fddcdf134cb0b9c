"""Induction heads: a mark stands in random words and again at their end; the answer is the word after the first."""

from __future__ import annotations

from dataclasses import dataclass

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.synthetic import NOT_ASKED, Synthetic

MARK = "?"


@dataclass(kw_only=True, eq=False)
class Induction(Synthetic):
    """Random words with a mark, and the mark again as the last word; its label is the word after the first mark.

    Defined as in Fu et al. (2022), and in Gu & Dao (2023), who train at 256 words and test at up to a million.

    Attributes:
        vocab: Number of words beside the mark; lengths are in words, including both marks.
    """

    shortest: int = 64
    longest: int = 64
    vocab: int = 16

    called = "induction"
    least = 3  # the mark, what follows it, and the mark again

    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        words = []
        for _ in range(length):
            words.append(f"w{generator.below(self.vocab)}")
        place = generator.below(length - 2)  # so that a word other than the last mark follows it
        # Marks are no words of the vocabulary, or one in sixteen words would be a question without an answer.
        words[place] = words[-1] = MARK
        return words, [*[NOT_ASKED] * (length - 1), words[place + 1]]

    def chance(self) -> float:
        return 1 / self.vocab
