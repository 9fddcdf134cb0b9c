"""Parity of bits: is the number of ones odd? A network has to count modulo two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.synthetic import NOT_ASKED, Synthetic

PARITIES = ("even", "odd")


@dataclass(kw_only=True, eq=False)
class Parity(Synthetic):
    """Fair bits; the label of the last bit, or of each bit, is the parity of the ones up to there.

    Lengths are those of the xLSTM paper's formal languages (Beck et al. 2024), which ask at the end.

    Attributes:
        asked: Bits that have a label, the last or every one; lengths are in bits.
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
            # By the count of all before it: no window of bits tells the answer.
            bits.append(str(bit))
            labels.append(PARITIES[ones % 2])
        # Far harder: of a long sequence one bit of answer comes back, through all of its steps.
        if self.asked == "end":
            labels[:-1] = [NOT_ASKED] * (length - 1)
        return bits, labels

    def chance(self) -> float:
        return 1 / len(PARITIES)
