"""Powers fitted to measurements: time = a n^b is a straight line over the logarithms, and b its slope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

MIN_POINTS = 3  # through two points every power fits


@dataclass(frozen=True)
class PowerLaw:
    """y = factor n^exponent, by least squares of the logarithms."""

    exponent: float
    error: float  # the exponent's standard error, from how far the points lie off the line
    factor: float
    points: int

    def at(self, n: float) -> float:
        """y at n."""
        return self.factor * n**self.exponent

    def record(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def fit(sizes: Sequence[float], values: Sequence[float]) -> PowerLaw | None:
    """The law of these measurements; None where fewer than MIN_POINTS are above 0."""
    pairs = [(size, value) for size, value in zip(sizes, values, strict=True) if value > 0]
    if len(pairs) < MIN_POINTS:
        return None
    logs = np.log(np.array(pairs, dtype=float))
    line: Any = stats.linregress(logs[:, 0], logs[:, 1])
    return PowerLaw(float(line.slope), float(line.stderr), float(np.exp(line.intercept)), len(pairs))
