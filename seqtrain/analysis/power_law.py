"""Power laws fitted to measurements: y = a n^b is a straight line over the logarithms, with slope b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

MIN_POINTS = 3  # through two points every power fits
CLEAR_ERROR = 0.25  # of an exponent: with a larger one, two errors either way hold a whole power more or less


@dataclass(frozen=True)
class PowerLaw:
    """y = factor n^exponent, fitted by least squares of the logarithms."""

    exponent: float
    error: float  # the exponent's standard error, from how far the points lie off the line
    factor: float
    points: int

    @property
    def is_clear(self) -> bool:
        """True if the points lie near enough to one line to determine its slope."""
        return self.error <= CLEAR_ERROR

    def at(self, n: float) -> float:
        """Return y at n."""
        return self.factor * n**self.exponent

    def words(self, axis: str) -> str:
        """Format the exponent with its error; if the error is too large, say first that there is no clear exponent."""
        slope = f"{axis}^{self.exponent:.2f} +- {self.error:.2f}"
        return slope if self.is_clear else f"no clear exponent ({slope})"

    def record(self) -> dict[str, Any]:
        """Return the law as JSON values."""
        return {**asdict(self), "clear": self.is_clear}


def fit(sizes: Sequence[float], values: Sequence[float]) -> PowerLaw | None:
    """Fit a power law to measurements; return None if fewer than MIN_POINTS values are above 0."""
    pairs = [(size, value) for size, value in zip(sizes, values, strict=True) if value > 0]
    if len(pairs) < MIN_POINTS:
        return None
    logs = np.log(np.array(pairs, dtype=float))
    line: Any = stats.linregress(logs[:, 0], logs[:, 1])
    return PowerLaw(float(line.slope), float(line.stderr), float(np.exp(line.intercept)), len(pairs))
