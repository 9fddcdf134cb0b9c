"""Picture of a ladder of budgets: losses, the law with its interval, and the rung that was held back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqtrain.analysis.pictures import COLORS, new_figure, save
from seqtrain.analysis.scaling_law import CONFIDENCE, Fitted

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
        # Budgets are met to a percent.
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
        title=f"Fitted to small budgets, asked about a larger one (bands: {CONFIDENCE:.0%} for one training)",
    )
    axes.legend(fontsize=8)
    save(figure, path)
