"""Series with missing values and a label: a mean in their place, the last value, a mask, and GRU-D's trained decay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from shared import Bench, Numbers, Result, Row, dots, grid, main, new_figure, paired, spread

CLAIM = "A model that is told what is missing, and for how long, is better than one that reads filled values as true."
SHARES = (0.3, 0.7)
SERIES, LENGTH = 400, 48  # as many series of either label
WAYS = {
    "mean": ("data.missing=mean", "model=gru"),
    "last value": ("data.missing=mean", "model=gru"),  # in a file whose gaps are filled
    "mask": ("data.missing=mask", "model=gru"),
    "GRU-D": ("data.missing=mask", "model=gru_d"),
}
COMMON = (
    *("task=classify", "data=series", "data.id_column=name", "data.label_column=label", "data.columns=[value]"),
    *("model.dim=24", "model.dropout=0", "task.dropout=0", "optimizer.lr=0.004", "data.batch_size=32"),
    *("trainer.max_steps=250", "trainer.validate_every=250", "callbacks=none"),
)
CHANCE = 0.5


def run(bench: Bench) -> Result:
    """Train each way at each share, on the same series with the same gaps."""
    rows: list[Row] = []
    accuracy: dict[float, Numbers] = {}
    figure = new_figure(9, 2.6)
    for axes, share in zip(figure.subplots(1, len(SHARES), sharex=True), SHARES, strict=True):
        table = series(share)
        gaps, filled = (
            write(bench.out / f"gaps_{share}.csv", table),
            write(bench.out / f"filled_{share}.csv", fill(table)),
        )
        files = {way: filled if way == "last value" else gaps for way in WAYS}
        variants = {f"{way}, {share:.0%}": (*words, f"data.path={files[way]}") for way, words in WAYS.items()}
        some, accuracy[share] = grid(bench, variants, COMMON, lambda run: run.metrics["validation"]["accuracy"])
        rows += some
        dots(axes, accuracy[share])
        axes.set(xlabel="accuracy", title=f"{share:.0%} of the values are missing")
    return Result(rows, *judge(accuracy), figure)


def series(share: float) -> pd.DataFrame:
    """Draw noisy waves of two wavelengths, 10 and 16 steps, which are the labels; remove a share of the values."""
    generator = np.random.default_rng(0)
    parts = []
    for number in range(SERIES):
        label = ("ten", "sixteen")[number % 2]
        steps = np.arange(LENGTH)
        phase, noise = generator.uniform(0, 2 * np.pi), generator.normal(0, 0.3, LENGTH)
        values = np.sin(2 * np.pi * steps / (10, 16)[number % 2] + phase) + noise
        values[generator.permutation(LENGTH)[: round(share * LENGTH)]] = np.nan
        parts.append(pd.DataFrame({"name": f"s{number}", "step": steps, "value": values, "label": label}))
    return pd.concat(parts)


def fill(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the last value that was seen in each gap; the mean, 0, before the first one."""
    return table.assign(value=table.groupby("name", sort=False)["value"].ffill().fillna(0.0))


def write(path: Path, table: pd.DataFrame) -> Path:
    """Write the table as csv; return the path."""
    table.to_csv(path, index=False)
    return path


def judge(accuracy: dict[float, Numbers]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether GRU-D is better than the mean at each share."""
    words, signs = [], []
    for share, numbers in accuracy.items():
        told = ", ".join(f"{name.partition(',')[0]} {spread(values)}" for name, values in numbers.items())
        mean, last, mask, decay = numbers.values()
        against = {"the mean": mean, "the last value": last, "the mask": mask}
        judged = {name: paired(decay, values, 3 * len(accuracy)) for name, values in against.items()}
        signs.append(judged["the mean"].sign)
        differences = "; ".join(f"GRU-D minus {name} {difference.words()}" for name, difference in judged.items())
        words.append(f"{share:.0%} missing: {told}. {differences}")
    if any(sign == -1 for sign in signs):
        return ". ".join(words), False
    return ". ".join(words), True if all(sign == 1 for sign in signs) else None


if __name__ == "__main__":
    main("missing", CLAIM, run)
