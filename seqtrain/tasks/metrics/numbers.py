"""Errors of predicted numbers in their own unit, and their rank correlation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata


def quality(found: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> dict[str, float]:
    """Return errors in the unit of the data, and the rank correlation; 0 if either side is constant."""
    errors = found - true
    # Equal numbers share the mean of their ranks, as in Spearman's definition.
    ranks, true_ranks = rankdata(found), rankdata(true)
    spearman = 0.0
    if np.ptp(ranks) and np.ptp(true_ranks):
        spearman = float(np.corrcoef(ranks, true_ranks)[0, 1])
    return {"mse": float((errors**2).mean()), "mae": float(np.abs(errors).mean()), "spearman": spearman}
