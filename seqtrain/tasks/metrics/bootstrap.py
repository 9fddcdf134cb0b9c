"""Bootstrap intervals of a statistic: blocks are resampled with replacement (Efron 1979; Künsch 1989)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 1000
CONFIDENCE = 0.95


def resample(
    statistic: Callable[[Int[np.ndarray, " N"]], float | Float[np.ndarray, " K"]],
    num_blocks: int,
    *,
    num_resamples: int = RESAMPLES,
) -> Float[np.ndarray, " R *K"]:
    """Draw blocks with replacement and compute a statistic, or K of them, for each draw.

    Args:
        statistic: Function of the number of times (N,) each block was drawn.
        num_blocks: N. Values within a block may be correlated; the blocks themselves should not be.
        num_resamples: R, the number of draws of N blocks.

    Returns:
        The statistic of each draw.
    """
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(num_resamples):
        # Counts, not indices: a statistic of sums is then one product.
        times_drawn = np.bincount(rng.integers(num_blocks, size=num_blocks), minlength=num_blocks)
        draws.append(statistic(times_drawn))
    return np.array(draws)


def interval(
    draws: Float[np.ndarray, " R *K"], confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, " *K"], Float[np.ndarray, " *K"]]:
    """Return the lower and upper end of the interval that holds this share of all draws (Efron's percentiles)."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high
