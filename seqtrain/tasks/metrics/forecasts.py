"""Errors of forecasts, as sums and counts that add up over batches and processes.

A target that is NaN is neither summed nor counted. Sums are in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import betaln, stdtr, stdtrit
from torch import Tensor

Term = tuple[Tensor, int]
"""A sum over targets, and the count of those targets."""


def summed(values: Float[Tensor, "*N"], here: Bool[Tensor, "*N"]) -> Term:
    """Sum the values where `here` is True; return the sum and their number."""
    # Selected, not multiplied by the mask: a missing target is NaN, and NaN times 0 is NaN.
    return values[here].double().sum(), int(here.sum())


def squared_error(found: Float[Tensor, "*N"], true: Float[Tensor, "*N"]) -> Term:
    """Sum the squared errors of a forecast; their mean over targets is the MSE."""
    return summed((found.double() - true.double()) ** 2, ~true.isnan())


def absolute_error(found: Float[Tensor, "*N"], true: Float[Tensor, "*N"]) -> Term:
    """Sum the absolute errors of a forecast's median; their mean over targets is the MAE."""
    return summed((found.double() - true.double()).abs(), ~true.isnan())


def scaled_error(found: Float[Tensor, "*N"], true: Float[Tensor, "*N"], scale: Float[Tensor, "*N"]) -> Term:
    """Sum absolute errors over the seasonal naive error of train; the mean is the MASE (Hyndman and Koehler 2006).

    `scale`: seasonal naive error of the series of each target, from `Scaling.naive`. A target counts only if
    its scale is above 0: a series that repeats itself exactly has a scale of 0, one that is too short has none.
    """
    scale = scale.double()
    scaled = ~true.isnan() & (scale > 0)
    return summed((found.double() - true.double()).abs() / torch.where(scaled, scale, 1.0), scaled)


def pinball_losses(
    found: Float[Tensor, "*N Q"], true: Float[Tensor, "*N"], levels: Sequence[float]
) -> Float[Tensor, "*N Q"]:
    """Return the quantile loss by target and level: `level` times a shortfall, or 1 - `level` times an excess."""
    short = true.unsqueeze(-1) - found
    level = torch.tensor(levels, dtype=found.dtype, device=found.device)
    return torch.maximum(level * short, (level - 1) * short)


def crps_of_quantiles(
    found: Float[Tensor, "*N Q"], true: Float[Tensor, "*N"], levels: Sequence[float]
) -> Float[Tensor, "*N"]:
    """Return twice the mean quantile loss over the levels, an approximation of the CRPS.

    If the levels are 1/2Q, 3/2Q, ... it is the integral over all levels by the midpoint rule. For other levels, compare
    only values at the same levels.
    """
    return 2 * pinball_losses(found.double(), true.double(), levels).mean(-1)


def crps_of_gaussian(
    loc: Float[Tensor, "*N"], scale: Float[Tensor, "*N"], true: Float[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """Return the continuous ranked probability score of a normal distribution (Gneiting, Raftery 2007), in its unit."""
    scale = scale.double()
    z = (true.double() - loc.double()) / scale
    density = torch.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    # erf is 2 Phi(z sqrt 2) - 1, without the loss of digits of a probability near 1.
    return scale * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


def crps_of_student_t(
    df: Float[Tensor, "*N"], loc: Float[Tensor, "*N"], scale: Float[Tensor, "*N"], true: Float[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """Return the CRPS of Student's t with over 1 degree of freedom (Jordan et al. 2019), in its unit; no gradient."""
    # torch has no distribution function of t, so the numbers go through numpy.
    nu, place, width, y = (part.detach().double().cpu().numpy() for part in (df, loc, scale, true))
    z = (y - place) / width
    density = np.exp(-0.5 * (nu + 1) * np.log1p(z**2 / nu) - 0.5 * np.log(nu) - betaln(nu / 2, 0.5))
    # By logarithms, because both functions underflow for many degrees of freedom.
    self_distance = 2 * np.sqrt(nu) / (nu - 1) * np.exp(betaln(0.5, nu - 0.5) - 2 * betaln(nu / 2, 0.5))
    score = z * (1 - 2 * stdtr(nu, -z)) + 2 * density * (nu + z**2) / (nu - 1) - self_distance
    return torch.from_numpy(np.asarray(width * score)).to(true.device)


def quantile_of_student_t(df: Float[Tensor, "*N"], level: float) -> Float[Tensor, "*N"]:
    """Return the quantile of Student's t with location 0 and scale 1, in float64; no gradient."""
    # In the lower half, since a level near 1 has few digits; the distribution is symmetric.
    deviations = stdtrit(df.detach().double().cpu().numpy(), min(level, 1 - level))
    return torch.from_numpy(np.asarray(deviations)).to(df.device) * (-1.0 if level > 0.5 else 1.0)


def coverage(low: Float[Tensor, "*N"], high: Float[Tensor, "*N"], true: Float[Tensor, "*N"]) -> Term:
    """Count targets in an interval, ends included; for the 10 % and 90 % quantiles the share should be 80 %."""
    return summed(((low <= true) & (true <= high)).double(), ~true.isnan())
