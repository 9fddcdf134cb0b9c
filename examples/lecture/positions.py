"""Three codes of positions, and none: what each makes of the distance of two tokens, and what a model learns by it."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from torch import Tensor

from seqtrain.models.layers.positions import rotary_table, rotate, sinusoids
from shared import COLORS, Bench, Numbers, Result, dots, fmean, grid, main, new_figure

CLAIM = (
    "Sinusoidal and rotary codes make the score of two tokens a function of their distance; a learned table does not."
)
CODES = {
    "rotary": ("model.positions=rotary",),
    "sinusoidal": ("model.positions=sinusoidal",),
    "learned": ("model.positions=learned", "model.max_length=512"),
    "none": ("model.positions=none",),
}
COMMON = (
    *("task=sentiment", "data=word_order", "model=bert", "model.dim=32", "model.num_heads=2", "model.dropout=0"),
    *("task.dropout=0", "optimizer.lr=0.003", "trainer.max_steps=700", "trainer.validate_every=700", "callbacks=none"),
)
CHANCE = 0.5  # of two labels
LEARNT = 0.95
WIDTH, LENGTH = 64, 100
ROUNDING = 1e-9  # in float64


def run(bench: Bench) -> Result:
    """Measure how the score changes with the place at equal distance; train an encoder with each code."""
    scores = products()
    moved = {code: spread_at_equal_distance(of_pairs) for code, of_pairs in scores.items()}
    rows, accuracy = grid(bench, CODES, COMMON, lambda run: run.metrics["validation"]["accuracy"])
    for row in rows:
        row["changes_with_place"] = moved[str(row["variant"])]
    figure = new_figure(9, 3)
    left, right = figure.subplots(1, 2)
    draw(left, scores)
    dots(right, accuracy)
    right.axvline(CHANCE, linestyle=":", color="black")
    right.set(xlabel="accuracy (dotted: a guess)", xlim=(0.4, 1.03), title="A label that only order tells")
    return Result(rows, *judge(moved, accuracy), figure)


def products() -> dict[str, Tensor]:
    """Return the scores (LENGTH, LENGTH) of one query and one key at each pair of positions, untrained."""
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, WIDTH, generator=generator, dtype=torch.float64)
    index = torch.arange(LENGTH)
    turns = rotary_table(LENGTH, WIDTH, torch.device("cpu"))
    table = torch.randn(LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    waves = sinusoids(index, WIDTH, torch.float64)
    turned = [rotate(vector.expand(LENGTH, WIDTH), turns) for vector in (query, key)]
    return {
        "rotary": turned[0] @ turned[1].T,
        "sinusoidal": waves @ waves.T,  # of the codes alone: what is added to the tokens
        "learned": table @ table.T,
        "none": (query @ key).expand(LENGTH, LENGTH),
    }


def spread_at_equal_distance(scores: Tensor) -> float:
    """Return the largest difference of two scores at the same distance, as a share of the largest score."""
    bands = [scores.diagonal(-distance) for distance in range(LENGTH)]
    return max((band.max() - band.min()).item() for band in bands) / scores.abs().max().item()


def draw(axes: Axes, scores: dict[str, Tensor]) -> None:
    """Draw the score of the last token with each token before it."""
    for color, (code, of_pairs) in zip(COLORS, scores.items(), strict=False):
        axes.plot((of_pairs[-1] / of_pairs.abs().max()).flip(0), color=color, label=code, linewidth=1)
    axes.set(xlabel="distance in tokens", ylabel="score, share of the largest", title="Query and key, untrained")
    axes.legend(fontsize=8)


def judge(moved: dict[str, float], accuracy: Numbers) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds; None if a code was not learnt in these steps."""
    shifts = ", ".join(f"{code} {share:.1g}" for code, share in moved.items())
    learnt = ", ".join(f"{code} {fmean(values):.3f}" for code, values in accuracy.items())
    verdict = (
        f"two pairs of positions at the same distance differ in their score by at most these shares: {shifts}. "
        f"Accuracy where only order tells the label: {learnt}; a guess: {CHANCE}"
    )
    by_distance = all(moved[code] < ROUNDING for code in ("rotary", "sinusoidal")) and moved["learned"] > ROUNDING
    if not by_distance or max(accuracy["none"]) > LEARNT:
        return verdict, False
    return verdict, True if all(min(accuracy[code]) >= LEARNT for code in CODES if code != "none") else None


if __name__ == "__main__":
    main("positions", CLAIM, run)
