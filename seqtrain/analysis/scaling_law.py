"""A scaling law of loss by compute, fitted to small trainings and used to predict a larger one.

L(C) = a C^-b + c, where c is the irreducible loss (Hoffmann et al. 2022, arXiv 2203.15556). It is fitted to the
logarithm of the loss with a robust loss function. Intervals come from repeated fits to resampled residuals. A law need
not hold beyond its data, so the intervals also include its error in predicting each upper rung from those below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize

from seqtrain.analysis.measured import COLORS, new_figure, save

MIN_RUNGS = 4  # different budgets: three parameters are fitted, and one rung is left to predict
CONFIDENCE = 0.9
RESAMPLES = 400
HUBER = 0.01  # residuals of log loss above this weigh less, so that a failed run does not distort the law
MAX_EXPONENT = 2.0
NOTHING = 1e-3  # c below this share of a counts as 0
STARTS = ((0.1, 0.0), (0.3, 0.5), (0.6, 0.9))  # starts of the search: exponent, and c as a share of the smallest loss


@dataclass(frozen=True)
class Law:
    """L(C) = a (C / unit)^-b + c."""

    a: float
    b: float
    c: float
    unit: float  # the smallest fitted budget, in FLOPs

    def at(self, flops: float) -> float:
        """Return the loss at this compute, in nats."""
        return self.a * (flops / self.unit) ** -self.b + self.c


@dataclass(frozen=True)
class Prediction:
    """The prediction of a law for an amount of compute."""

    flops: float
    loss: float
    low: float  # ends of the interval of CONFIDENCE in which a single training is expected
    high: float


@dataclass(frozen=True)
class Fitted:
    """A fitted law with its uncertainty."""

    law: Law
    plain: Law  # the same, fitted with c = 0
    b_low: float
    b_high: float
    c_low: float
    c_high: float
    residual: float  # standard deviation of log loss around the law
    miss: float  # RMS error of log loss per doubling of compute beyond the fitted rungs
    largest: float  # FLOPs of the largest fitted rung
    drawn: list[Law] = field(default_factory=list, repr=False)
    residuals: list[float] = field(default_factory=list, repr=False)

    def predict(self, flops: float, *, seed: int = 0) -> Prediction:
        """Predict the loss of one training with this compute in FLOPs, with its interval."""
        rng = np.random.default_rng(seed)
        # A single run scatters around the law like the fitted ones, and the law's own error grows with distance.
        doublings = max(np.log2(flops / self.largest), 0.0)
        noise = rng.choice(self.residuals, size=len(self.drawn))
        noise = noise + rng.normal(size=len(noise)) * self.miss * doublings
        # Noise is added to the logarithm, because a loss cannot be below 0.
        losses = [law.at(flops) * np.exp(each) for law, each in zip(self.drawn, noise, strict=True)]
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(losses, [tail, 1 - tail])
        return Prediction(flops, self.law.at(flops), float(low), float(high))

    def record(self) -> dict[str, Any]:
        """Return the law and its uncertainty as JSON values."""
        names = ("b_low", "b_high", "c_low", "c_high", "residual", "miss")
        return {"law": asdict(self.law), "plain": asdict(self.plain)} | {name: getattr(self, name) for name in names}

    def remarks(self) -> list[str]:
        """Return a remark on each part of the law that these budgets do not determine."""
        said = []
        if self.c_low <= NOTHING * self.law.a:  # the search ends next to 0, not at it
            said.append("c cannot be distinguished from 0: a plain power law fits as well")
        if self.b_high >= MAX_EXPONENT * 0.99 or self.b_low <= 1e-3:
            said.append("the exponent is poorly determined: use more rungs, farther apart, or more seeds")
        return said


def fit(flops: Sequence[float], losses: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> Fitted:
    """Fit the law to trainings.

    Args:
        flops: Compute of each training, in FLOPs.
        losses: Loss of each training, in nats.
        seed: Seed of the resamples.
        resamples: Number of resamples of the residuals.

    Returns:
        The law, with intervals of CONFIDENCE for b and c.

    Raises:
        ValueError: If there are fewer than MIN_RUNGS budgets of different size.
    """
    compute, measured = np.array(flops, dtype=float), np.array(losses, dtype=float)
    if len(np.unique(np.round(np.log(compute), 2))) < MIN_RUNGS:
        raise ValueError(f"{len(compute)} trainings of fewer than {MIN_RUNGS} budgets: cannot fit three parameters")
    law, plain = _fit(compute, measured, free=True), _fit(compute, measured, free=False)
    # Loss that the law predicts for each training it was fitted to.
    expected = np.array([law.at(each) for each in compute])
    residuals = np.log(measured / expected)
    # Correct for the three fitted parameters.
    residuals *= np.sqrt(len(residuals) / max(len(residuals) - 3, 1))
    # A fixed seed: the same trainings always give the same interval.
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        # The same budgets with resampled residuals.
        again = expected * np.exp(rng.choice(residuals, size=len(residuals)))
        drawn.append(_fit(compute, again, free=True, start=law))
    tail = (1 - CONFIDENCE) / 2
    b_low, b_high = np.quantile([each.b for each in drawn], [tail, 1 - tail])
    c_low, c_high = np.quantile([each.c for each in drawn], [tail, 1 - tail])
    return Fitted(
        law=law,
        plain=plain,
        b_low=float(b_low),
        b_high=float(b_high),
        c_low=float(c_low),
        c_high=float(c_high),
        residual=float(residuals.std()),
        miss=_miss(compute, measured),
        largest=float(compute.max()),
        drawn=drawn,
        residuals=residuals.tolist(),
    )


def _miss(flops: Float[np.ndarray, " N"], losses: Float[np.ndarray, " N"]) -> float:
    """Return the RMS error of log loss per doubling of compute, at upper rungs, of laws fitted to the rungs below."""
    # Runs of one rung spend the same compute within a percent.
    rungs = np.round(np.log2(flops), 1)
    misses = []
    for rung in np.unique(rungs)[MIN_RUNGS - 1 :]:
        below, there = rungs < rung, rungs == rung
        law = _fit(flops[below], losses[below], free=True)
        doublings = np.log2(flops[there].mean() / flops[below].max())
        misses.append(np.log(losses[there].mean() / law.at(flops[there].mean())) / doublings)
    return float(np.sqrt(np.mean(np.square(misses))))


def _fit(
    flops: Float[np.ndarray, " N"], losses: Float[np.ndarray, " N"], *, free: bool, start: Law | None = None
) -> Law:
    """Fit the law that minimises the robust error.

    Args:
        flops: Compute of each training, in FLOPs.
        losses: Loss of each training, in nats.
        free: Fit c as well; otherwise it is 0.
        start: Start of the search, if known.
    """
    # In units of the smallest budget, so that a is of the size of a loss.
    unit, least = flops.min(), losses.min()
    logs = np.log(flops / unit)

    def errors(numbers: np.ndarray) -> np.ndarray:
        log_a, b, c = numbers
        return np.log(np.exp(log_a - b * logs) + c) - np.log(losses)

    # The irreducible loss must be below every measured loss.
    most = 0.999 * least if free else 1e-12
    begins = []
    if start is not None:
        begins.append((np.log(start.a), start.b, min(start.c, most)))
    else:
        for b, share in STARTS:
            c = share * most
            begins.append((np.log(losses.max() - c), b, c))
    best: Any = None
    for begin in begins:
        bounds = ([-20, 1e-4, 0.0], [20, MAX_EXPONENT, most])
        # The search must start strictly inside its bounds.
        inside = np.clip(begin, np.array(bounds[0]) + 1e-9, np.array(bounds[1]) - 1e-13)
        found = optimize.least_squares(errors, inside, bounds=bounds, loss="huber", f_scale=HUBER)
        if best is None or found.cost < best.cost:
            best = found
    log_a, b, c = best.x
    return Law(float(np.exp(log_a)), float(b), float(c) if free else 0.0, float(unit))


# -- the plot ------------------------------------------------------------------------------------------------------

POINTS = 40  # of a curve


def draw(laws: dict[str, Fitted], rungs: Sequence[tuple[str, float, float]], largest: float, path: Path) -> None:
    """Draw the laws of several models.

    Args:
        laws: Fitted laws by model.
        rungs: Model, FLOPs and loss of each training.
        largest: FLOPs of the largest fitted rung; larger rungs were held back.
        path: Path of the PNG.
    """
    figure = new_figure(7.2, 4.4)
    axes = figure.subplots()
    for color, (model, fitted) in zip(COLORS, laws.items(), strict=False):
        own = [(flops, loss) for name, flops, loss in rungs if name == model]
        # Budgets are met within a percent.
        fitted_ones = [point for point in own if point[0] <= 1.05 * largest]
        held_back = [point for point in own if point[0] > 1.05 * largest]
        # Up to the held-back rung, where the law makes its prediction.
        span = np.geomspace(min(own)[0], max(own)[0], POINTS)
        predictions = [fitted.predict(float(flops)) for flops in span]
        axes.plot(span, [each.loss for each in predictions], "--", color=color, label=f"{model}: fitted law")
        axes.fill_between(
            span, [each.low for each in predictions], [each.high for each in predictions], color=color, alpha=0.15
        )
        axes.plot(*zip(*fitted_ones, strict=True), "o", color=color, label=f"{model}: fitted rungs")
        if held_back:
            axes.plot(*zip(*held_back, strict=True), "*", color=color, markersize=13, label=f"{model}: held back")
    axes.set(
        xscale="log",
        xlabel="compute (FLOPs)",
        ylabel="loss of validation (nats a token)",
        title=f"Fitted to small budgets, extrapolated to a larger one (bands: {CONFIDENCE:.0%} for one training)",
    )
    axes.legend(fontsize=8)
    save(figure, path)
