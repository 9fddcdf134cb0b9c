"""Made-up sums in words, each with its value as the label; the order of words decides which numbers are subtracted."""

from __future__ import annotations

from dataclasses import dataclass

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.synthetic import Generated, phrases
from seqtrain.errors import UserError

NUMBERS = phrases("""
zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen,
seventeen, eighteen, nineteen, twenty
""")
SIGNS = {"plus": 1, "minus": -1}


@dataclass(kw_only=True, eq=False)
class SpelledSums(Generated):
    """Distinct sums of numbers from 0 to 20; the label is the value of the sum, which may be negative.

    Attributes:
        terms: The most numbers in a sum, at least 2.
    """

    size: int = 8000
    terms: int = 4

    label_kind = "number"
    document = "a sum"
    called = rows_called = "sums"

    def __post_init__(self) -> None:
        """Check the size; raise UserError if there are not that many sums."""
        super().__post_init__()
        # Half of the sums have three terms or more, of which there are enough: each sum comes once.
        if self.size > 30_000 and self.terms == 3:
            raise UserError(
                f"data.size={self.size}: there are not that many sums of data.terms=3 to draw; give more terms"
            )

    def draw(self, generator: SplitMix64, count: int) -> list[tuple[Row]]:
        # By text: a sum that is drawn twice has the same value, and stands in one split alone.
        values: dict[str, int] = {}
        while len(values) < count:
            first = generator.below(len(NUMBERS))
            words, value = [NUMBERS[first]], first
            # Two terms at least: a number alone is no sum.
            for _ in range(1 + generator.below(self.terms - 1)):
                sign, number = generator.choice(list(SIGNS)), generator.below(len(NUMBERS))
                words += [sign, NUMBERS[number]]
                value += SIGNS[sign] * number
            values[" ".join(words)] = value
        return [({"text": text, "label": str(value)},) for text, value in values.items()]
