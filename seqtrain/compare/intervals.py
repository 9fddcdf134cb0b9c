"""Simultaneous intervals of the differences between the best of several variants and each other one.

The best is found by looking at all variants, so the intervals hold for all pairs at once: Tukey's studentized range
with a variance for each variant (Games & Howell 1976). Three seeds give a poor estimate of a variance, so each variance
borrows from the others: it is shrunk towards the common variance, more strongly with more variants, and never below the
estimate from its own seeds. docs/guarantees.md has the simulated error rates and power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

# Level of the quantiles. It is stricter than the 95 % that the intervals promise: with variances of three seeds and
# unequal spreads, up to 6 % of all comparisons would err at 95 % itself.
NOMINAL = 0.9625
FEWEST_TO_BORROW = 3  # variants: up to this number nothing is borrowed, as the common variance is unknown
MOST_TO_BORROW = 10  # variants: from this number on the common variance weighs as much as a variant's own
# Limit of the common variance, relative to the median one: a few unstable variants must not widen all intervals.
WILD = 4.0
TWO_SEEDS = 2  # their spread is a single difference: no borrowing, and no studentized range
GRID = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0, 120.0, 1e4)  # degrees of freedom


def half_widths(
    variances: Float[np.ndarray, "*S k"], counts: Int[np.ndarray, " k"], best: Int[np.ndarray, "*S"]
) -> Float[np.ndarray, "*S k"]:
    """Return half of the 95 % interval of each variant's difference to the best one.

    Args:
        variances: the variance over seeds of each of k variants; any number of comparisons at once.
        counts: the number of seeds of each variant, at least 2.
        best: the index of the variant that each difference is taken to.

    Returns:
        One half width per variant; that of `best` itself has no meaning.
    """
    own_freedom = counts - 1.0
    borrowed, freedom = _borrow(variances, own_freedom)
    tukey = _half(borrowed, freedom, counts, best, studentized_range)
    if (counts > TWO_SEEDS).all():
        return tukey
    welch = _half(variances, np.broadcast_to(own_freedom, variances.shape), counts, best, bonferroni)
    few = (counts == TWO_SEEDS) | (counts[best] == TWO_SEEDS)[..., None]
    return np.where(few, welch, tukey)


def _borrow(
    variances: Float[np.ndarray, "*S k"], own: Float[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, "*S k"], Float[np.ndarray, "*S k"]]:
    """Shrink each variance towards the common one, never below itself; return it with its new degrees of freedom."""
    from scipy.special import chdtri

    num_variants = variances.shape[-1]
    weight = (num_variants - FEWEST_TO_BORROW) / (MOST_TO_BORROW - FEWEST_TO_BORROW)
    lent = own * min(max(weight, 0.0), 1.0)
    mean = (variances * own).sum(-1, keepdims=True) / own.sum()
    # Corrected for few seeds: the median of chi-squared is below its mean, so a typical variance is too small.
    middle = np.median(variances * own / chdtri(own, 0.5), -1, keepdims=True)
    common = np.minimum(mean, WILD * middle)
    drawn = (lent * common + own * variances) / (lent + own)
    return np.maximum(variances, drawn), np.broadcast_to(lent + own, variances.shape)


def _half(
    variances: Float[np.ndarray, "*S k"],
    freedom: Float[np.ndarray, "*S k"],
    counts: Int[np.ndarray, " k"],
    best: Int[np.ndarray, "*S"],
    quantile: Callable[[int, np.ndarray], np.ndarray],
) -> Float[np.ndarray, "*S k"]:
    """Return half widths from variances and their degrees of freedom (Welch 1947, Satterthwaite 1946)."""
    place = np.expand_dims(best, -1)
    error = variances / counts
    best_error = np.take_along_axis(error, place, -1)
    best_freedom = np.take_along_axis(freedom, place, -1)
    both = error + best_error
    with np.errstate(divide="ignore", invalid="ignore"):
        pair = both**2 / (error**2 / freedom + best_error**2 / best_freedom)
    # With unequal counts, the fewer seeds may have a small spread by luck, and the pair would get too much freedom.
    least = np.minimum(freedom, best_freedom)
    best_count = counts[best][..., None]
    most = least * (1 + np.minimum(counts, best_count) / np.maximum(counts, best_count))
    most = np.minimum(most, (counts - 1).sum())
    pair = np.clip(np.nan_to_num(pair, nan=1.0), 1.0, np.maximum(most, 1.0))
    return quantile(len(counts), pair) * np.sqrt(both)


def studentized_range(num_variants: int, freedom: Float[np.ndarray, "*S k"]) -> Float[np.ndarray, "*S k"]:
    """Return the quantile of the distance from best to worst of equal variants, in standard errors of a difference."""
    if num_variants == 2:  # a range of two is one difference
        from scipy.special import stdtrit

        return stdtrit(freedom, (1 + NOMINAL) / 2)
    known = [point for point in GRID if _is_near(point, freedom)]
    quantiles = [_range_quantile(num_variants, point) for point in known]
    # The quantile is nearly linear in 1/freedom, which falls while the grid rises.
    return np.interp(1 / freedom, [1 / point for point in known[::-1]], quantiles[::-1]) / math.sqrt(2)


def bonferroni(num_variants: int, freedom: Float[np.ndarray, "*S k"]) -> Float[np.ndarray, "*S k"]:
    """Return the same quantile by Student's t, with the error divided equally among all pairs."""
    from scipy.special import stdtrit

    return stdtrit(freedom, 1 - (1 - NOMINAL) / 2 / math.comb(num_variants, 2))


def _is_near(point: float, freedom: Float[np.ndarray, "*S k"]) -> bool:
    """Return True if interpolation needs this point of the grid: each point takes a tenth of a second to compute."""
    place = GRID.index(point)
    below, above = GRID[max(place - 1, 0)], GRID[min(place + 1, len(GRID) - 1)]
    return bool(((freedom >= below) & (freedom <= above)).any())


@lru_cache
def _range_quantile(num_variants: int, freedom: float) -> float:
    from scipy.stats import (
        studentized_range as distribution,
    )  # the import takes a second, and two variants do not need it

    return float(distribution.ppf(NOMINAL, num_variants, freedom))
