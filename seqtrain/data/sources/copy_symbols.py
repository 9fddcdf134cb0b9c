"""The copying task: symbols are repeated, in order, after a long stretch of blanks."""

from __future__ import annotations

from dataclasses import dataclass

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.synthetic import NOT_ASKED, Synthetic

BLANK, ASK = ".", "?"


@dataclass(kw_only=True, eq=False)
class CopySymbols(Synthetic):
    """Symbols, blanks, and then as many questions as symbols; the first question asks for the first symbol.

    The layout is that of Hochreiter & Schmidhuber (1997), Arjovsky et al. (2016) and Bai et al. (2018): the length is
    the number of blanks. Only the questions have labels; those papers count the blanks too.

    Attributes:
        symbols: Number of symbols to repeat; lengths are numbers of blanks.
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
            # Symbols may repeat, as in the papers: else the last ones could be told by elimination.
            kept.append(f"s{generator.below(self.alphabet)}")
        # The questions look alike: which symbol is asked for, only their number since the blanks tells.
        words = [*kept, *[BLANK] * length, *[ASK] * self.symbols]
        return words, [*[NOT_ASKED] * (self.symbols + length), *kept]

    def chance(self) -> float:
        return 1 / self.alphabet
