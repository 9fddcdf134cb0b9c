"""Made-up sums in words, each with its value as the label; the order of words decides which numbers are subtracted."""

from __future__ import annotations

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.generated import Generated
from seqtrain.data.sources.word_order import phrases
from seqtrain.errors import UserError

NUMBERS = phrases("""
zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen,
seventeen, eighteen, nineteen, twenty
""")
LARGEST = 100_000
SIGNS = {"plus": 1, "minus": -1}


class SpelledSums(Generated):
    """Distinct sums of numbers from 0 to 20; the label is the value of the sum, which may be negative."""

    label_kind = "number"
    document = "a sum"
    called = rows_called = "sums"

    def __init__(
        self,
        *,
        size: int = 8000,
        terms: int = 4,
        seed: int = 0,
        validation_fraction: float = 0.1,
        test_fraction: float = 0.1,
    ) -> None:
        """Check the size. `terms`: the most numbers in a sum, at least 2; fractions are of sums."""
        if not 2 <= size <= LARGEST:
            raise UserError(f"data.size={size}: must be from 2 to {LARGEST}")
        # Half of the sums have three terms or more, of which there are enough: each sum comes once.
        if size > 30_000 and terms == 3:
            raise UserError(f"data.size={size}: there are not that many sums of data.terms=3 to draw; give more terms")
        self.terms = terms
        fractions = {"validation_fraction": validation_fraction, "test_fraction": test_fraction}
        super().__init__(size=size, seed=seed, in_set=1, **fractions)

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
