"""Statistics over seeds: means, deviations, and a test if two models differ by more than chance.

Runs of the same seed read the same data in the same order. Two models are therefore compared seed by seed: the verdict
is on the mean of the differences, by Student's t interval. One seed has no deviation and gives no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95  # of the intervals; where several are told together, of all of them at once
FEWEST = 2  # seeds that show a spread


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of a number over seeds."""

    mean: float
    deviation: float | None  # between seeds; None: there is one
    count: int

    def words(self, digits: int = 3) -> str:
        """Format the mean, and in brackets the deviation if there is one, as in `0.512 (0.004)`."""
        text = f"{self.mean:.{digits}f}"
        return text if self.deviation is None else f"{text} ({self.deviation:.{digits}f})"


@dataclass(frozen=True)
class Difference:
    """The mean difference between two models, seed by seed, with its interval."""

    mean: float
    low: float | None  # ends of the interval; None: the seeds cannot give one
    high: float | None
    count: int
    why: str = ""  # why there is no interval
    comparisons: int = 1  # differences that the 95 % are of, all at once

    @property
    def sign(self) -> int | None:
        """1 or -1 if the interval shows that the first model's numbers are above or below; None if it contains 0."""
        if self.low is None or self.high is None:
            return None
        if self.low > 0:
            return 1
        return -1 if self.high < 0 else None

    def words(self, digits: int = 3) -> str:
        """Format the difference with its interval, or with the reason why there is none."""
        if self.low is None or self.high is None:
            return f"{self.mean:+.{digits}f} ({self.why})"
        return f"{self.mean:+.{digits}f} ({self.interval(f'{self.low:+.{digits}f}', f'{self.high:+.{digits}f}')})"

    def interval(self, low: str, high: str) -> str:
        """Format the interval between two ends that are already formatted."""
        together = "" if self.comparisons == 1 else f" of {self.comparisons} comparisons at once"
        return f"95 % interval{together} {low} to {high}, {self.count} seeds"


def spread(values: Sequence[float]) -> Spread:
    """Return mean and deviation of a number over seeds.

    Args:
        values: One value for each seed, at least one.
    """
    mean = math.fsum(values) / len(values)
    if len(values) < FEWEST:
        return Spread(mean, None, len(values))
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Spread(mean, math.sqrt(squares / (len(values) - 1)), len(values))


def paired(first: Sequence[float], second: Sequence[float], comparisons: int = 1) -> Difference:
    """Compare the numbers of two models seed by seed, by Student's t interval (Student 1908).

    Args:
        first: A number of the first model for each seed.
        second: That of the second model, for the same seeds in the same order.
        comparisons: Number of differences that are judged together: more make each interval wider (Bonferroni).

    Returns:
        The mean of `first` minus `second`. It has no interval if there is one seed, if a number is not finite, or if
        all differences are equal: then the seeds do not show the effect of chance.

    Raises:
        ValueError: If the two do not have the same number of seeds.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} seeds: a pair for each seed is needed")
    # Per seed: the difference cancels what makes a seed hard for both models.
    differences = [left - right for left, right in zip(first, second, strict=True)]
    if not all(map(math.isfinite, differences)):
        return Difference(math.nan, None, None, len(differences), "a number is not finite, no verdict")
    of_seeds = spread(differences)
    if of_seeds.deviation is None:
        return Difference(of_seeds.mean, None, None, 1, "one seed, no verdict")
    if of_seeds.deviation == 0:
        return Difference(of_seeds.mean, None, None, of_seeds.count, "the same for each seed, no verdict")

    from scipy.special import stdtrit

    count = of_seeds.count
    quantile = float(stdtrit(count - 1, 1 - (1 - LEVEL) / comparisons / 2))
    half = quantile * of_seeds.deviation / math.sqrt(count)
    return Difference(of_seeds.mean, of_seeds.mean - half, of_seeds.mean + half, count, comparisons=comparisons)
