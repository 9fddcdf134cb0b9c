"""Random vectors of many dimensions are nearly perpendicular, and their products grow with the root of the width."""

from __future__ import annotations

import math

import torch
from matplotlib.figure import Figure

from shared import COLORS, Bench, Result, Row, main, new_figure

CLAIM = "Random vectors are nearly perpendicular, and their products spread as sqrt(d): so attention divides by it."
DIMS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
NUM_PAIRS = 20_000
TOLERANCE = 0.05  # of a standard deviation, relative: 20,000 draws know it to 0.005


def run(bench: Bench) -> Result:
    """Draw pairs of Gaussian vectors; measure their cosine, their product, and the product divided by sqrt(d)."""
    generator = torch.Generator().manual_seed(bench.seeds)
    rows: list[Row] = []
    for dim in DIMS:
        left = torch.randn(NUM_PAIRS, dim, generator=generator)
        right = torch.randn(NUM_PAIRS, dim, generator=generator)
        products = (left * right).sum(1)
        cosines = products / (left.norm(dim=1) * right.norm(dim=1))
        degrees = cosines.acos().rad2deg()
        rows.append(
            {
                "dim": dim,
                "angle_off_90": (degrees - 90).abs().mean().item(),
                "cosine_sd": cosines.std().item(),
                "theory_1/sqrt(d)": 1 / math.sqrt(dim),
                "product_sd": products.std().item(),
                "theory_sqrt(d)": math.sqrt(dim),
                "scaled_product_sd": (products / math.sqrt(dim)).std().item(),
            }
        )
    last, scaled = rows[-1], [float(row["scaled_product_sd"]) for row in rows]
    off = max(abs(value - 1) for value in scaled)
    verdict = (
        f"in {last['dim']} dimensions the angle between two random vectors is on average "
        f"{last['angle_off_90']:.1f} degrees away from 90. Their product has a standard deviation of "
        f"{last['product_sd']:.1f} (theory, sqrt(d): {last['theory_sqrt(d)']:.1f}); divided by sqrt(d) it is "
        f"{scaled[-1]:.3f}, and in all {len(rows)} widths at most {off:.3f} away from 1"
    )
    return Result(rows, verdict, off < TOLERANCE, draw(rows))


def draw(rows: list[Row]) -> Figure:
    """Draw both standard deviations over the width, beside theory."""
    figure = new_figure(9, 3.6)
    angle, product = figure.subplots(1, 2)
    for axes, measured, theory, title, ticks in (
        (angle, "cosine_sd", "theory_1/sqrt(d)", "cosine of two random vectors", (0.03, 0.1, 0.3)),
        (product, "product_sd", "theory_sqrt(d)", "their product, before division by sqrt(d)", (1, 3, 10, 30)),
    ):
        axes.loglog(DIMS, [row[measured] for row in rows], "o", color=COLORS[0], label="measured")
        axes.loglog(DIMS, [row[theory] for row in rows], "--", color=COLORS[0], label=theory[len("theory_") :])
        axes.set(xlabel="dimensions d", ylabel="standard deviation", title=title)
        # The widths that were drawn, rather than powers of ten.
        axes.set_xticks(DIMS, [str(dim) for dim in DIMS], fontsize=8)
        axes.set_yticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.legend()
    return figure


if __name__ == "__main__":
    main("perpendicular", CLAIM, run)
