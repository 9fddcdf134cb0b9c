"""Series with the same prices in another order: a model without order guesses what happened."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from shared import Bench, Numbers, Result, dots, fmean, grid, main, new_figure

CLAIM = "Whether a price rose or fell lies in the order of the prices alone: a model without order guesses it."
SERIES, LENGTH = 1000, 32
BLIND = {"bag of values (cbow)": ("model=cbow",), "encoder without positions": ("model=bert", "model.positions=none")}
SEEING = {
    "LSTM": ("model=lstm",),
    "convolution (cnn)": ("model=cnn",),
    "encoder with positions": ("model=bert",),
}
COMMON = (
    *("task=classify", "data=vectors", "model.dim=32", "model.dropout=0", "task.dropout=0", "optimizer.lr=0.003"),
    *("trainer.max_steps=200", "trainer.validate_every=200", "callbacks=none"),
)
CHANCE, LEARNT = 0.5, 0.9


def run(bench: Bench) -> Result:
    """Train each model on the same series."""
    file = write(bench.out / "prices.jsonl")
    rows, accuracy = grid(
        bench, BLIND | SEEING, (*COMMON, f"data.path={file}"), lambda run: run.metrics["validation"]["accuracy"]
    )
    figure = new_figure(7, 2.6)
    axes = figure.subplots()
    dots(axes, accuracy)
    axes.axvline(CHANCE, linestyle=":", color="black")
    axes.set(xlim=(0.4, 1.02), xlabel="accuracy (dotted: a guess)", title="The same prices, in another order")
    return Result(rows, *judge(accuracy), figure)


def write(path: Path) -> Path:
    """Write random walks without a trend, each with a steep rise or fall somewhere; return the path.

    A fall is a rise read from its end, so both kinds hold the same prices with the same probability.
    """
    generator = np.random.default_rng(0)
    lines = []
    for number in range(SERIES):
        steps = generator.normal(0, 0.3, LENGTH)
        begin = generator.integers(2, LENGTH - 6)
        steps[begin : begin + 4] += 1.5
        prices = steps.cumsum()
        prices -= np.linspace(prices[0], prices[-1], LENGTH)  # ends where it begins: neither end tells the label
        label = ("rise", "fall")[number % 2]
        values = prices if label == "rise" else prices[::-1]
        lines.append(json.dumps({"values": [[round(value, 3)] for value in values.tolist()], "label": label}))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def judge(accuracy: Numbers) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds; None if a model that sees order has not learnt it."""
    words = ", ".join(f"{name} {fmean(values):.3f}" for name, values in accuracy.items())
    seeds = len(next(iter(accuracy.values())))
    verdict = f"series told right, mean over {seeds} seeds: {words}; a guess: {CHANCE}"
    if min(min(accuracy[name]) for name in SEEING) < LEARNT:
        return f"{verdict}; a model that sees order has not learnt the task", None
    return verdict, max(fmean(accuracy[name]) for name in BLIND) < CHANCE + 0.1


if __name__ == "__main__":
    main("same-prices", CLAIM, run)
