"""How far numbers are from the true ones, in their own unit and in rank."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata


def quality(found: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> dict[str, float]:
    """Errors in the unit of the data, and the correlation of ranks; 0 where one side has a single rank."""
    errors = found - true
    # Equal numbers share the mean of their ranks, as Spearman has it.
    ranks, true_ranks = rankdata(found), rankdata(true)
    spearman = 0.0
    if np.ptp(ranks) and np.ptp(true_ranks):
        spearman = float(np.corrcoef(ranks, true_ranks)[0, 1])
    return {"mse": float((errors**2).mean()), "mae": float(np.abs(errors).mean()), "spearman": spearman}
