"""LSTM and GRU with equal parameters, on text and on the adding problem."""

from __future__ import annotations

import math
from statistics import stdev
from typing import NamedTuple

from matplotlib.figure import Figure

from shared import COLORS, Bench, Difference, Result, Row, fmean, main, new_figure, paired

CLAIM = "LSTM and GRU do equally well where both have as many parameters."
MODELS = ("lstm", "gru")
LEARNING_RATE = "optimizer.lr=0.006"  # for both: each ships with one of its own, and these are not part of the claim


class Trial(NamedTuple):
    """A task that both models are trained on."""

    overrides: tuple[str, ...]
    steps: int
    metric: str
    label: str
    chance: float | None = None  # what is reached without reading anything; None: nothing simple is known
    by_ratio: bool = False  # errors that shrink by powers of ten are compared as ratios


TEXT = ("task=next_token", "tokenizer=byte", "tbptt.k2=64", "budget=params:100000")
ADDING = ("task=forecast", "data=adding", "data.length=30", "data.batch_size=64", "budget=params:12050")
TRIALS = {
    "text": Trial(TEXT, 250, "bits_per_byte", "bits per byte"),
    # Chance: the variance of a sum of two numbers from 0 to 1.
    "adding": Trial(ADDING, 600, "mse_original", "squared error of the sum", chance=1 / 6, by_ratio=True),
}
Measured = dict[str, dict[str, list[float]]]
"""Of each trial, of each model, the metric for each seed; less is better."""


def run(bench: Bench) -> Result:
    """Train both models on both tasks, for the same steps on the same batches."""
    measured: Measured = {name: {model: [] for model in MODELS} for name in TRIALS}
    rows: list[Row] = []
    for name, trial in TRIALS.items():
        steps = (f"trainer.max_steps={trial.steps}", f"trainer.validate_every={trial.steps}")
        for model in MODELS:
            values, size = measured[name][model], 0
            for seed in range(1, bench.seeds + 1):
                words = (*trial.overrides, *steps, f"model={model}", LEARNING_RATE, f"seed={seed}")
                trained = bench.train(f"{name}-{model}-{seed}", *words)
                values.append(trained.metrics["validation"][trial.metric])
                size = trained.summary["parameters"]["total"]
            row: Row = {"task": name, "model": model, "parameters": str(size), "metric": trial.metric}
            row |= {"mean": fmean(values), "sd": stdev(values) if len(values) > 1 else "-"}
            row["by_seed"] = " ".join(f"{value:.4g}" for value in values)
            rows.append(row | {"chance": "-" if trial.chance is None else trial.chance})
    return Result(rows, *judge(measured), draw(measured))


def judge(measured: Measured) -> tuple[str, bool | None]:
    """Return a verdict in words, and False if one model is better by more than chance.

    It is never True: seeds cannot prove that there is no difference. Otherwise the claim is not contradicted.
    """
    sentences, signs = [], []
    for name, trial in TRIALS.items():
        lstm, gru = measured[name]["lstm"], measured[name]["gru"]
        if trial.by_ratio:  # from 1e-4 to 1e-5 is as far as from 1e-2 to 1e-3
            judged = paired(list(map(log, lstm)), list(map(log, gru)), comparisons=2)
            words = f"LSTM divided by GRU {judged.words(lambda value: f'{math.exp(value):.2f}')}"
        else:
            judged = paired(lstm, gru, comparisons=2)
            words = f"LSTM minus GRU {judged.words()}"
        signs.append(judged.sign)
        words += f": {told(judged)}"
        # Between two models that guess there is nothing to choose.
        if trial.chance is not None and min(fmean(lstm), fmean(gru)) > trial.chance / 2:
            words += f", and neither has learned it (chance {trial.chance:.3f})"
        # A verdict goes on from what stands before it; each sentence behind its first begins anew.
        sentences.append(f"{name.capitalize() if sentences else name} ({trial.label}), {words}")
    return ". ".join(sentences), False if any(signs) else None


def log(value: float) -> float:
    """Return the logarithm; -inf for an error of 0, for which there is no verdict."""
    return math.log(value) if value > 0 else -math.inf


def told(judged: Difference) -> str:
    """Return which model is better, if the seeds show a difference."""
    if judged.interval is None:
        return "nothing is told apart"
    if judged.sign is None:
        return "these seeds cannot tell them apart"
    return "the GRU is better" if judged.sign > 0 else "the LSTM is better"


def draw(measured: Measured) -> Figure:
    """Draw a line for each seed from one model to the other, since each seed is compared with itself."""
    figure = new_figure(8, 3.8)
    for axes, (name, trial) in zip(figure.subplots(1, len(TRIALS)), TRIALS.items(), strict=True):
        # The axis does not begin at 0: what is looked at is whether lines of all seeds fall to the same side.
        for seed, pair in enumerate(zip(*measured[name].values(), strict=True), start=1):
            axes.plot(MODELS, pair, "o-", color=COLORS[(seed - 1) % len(COLORS)], label=f"seed {seed}")
        if trial.chance is not None:
            axes.axhline(trial.chance, linestyle=":", color=COLORS[-1], label="always the mean")
        axes.set(title=f"{name}: lower is better", ylabel=trial.label, xlim=(-0.5, len(MODELS) - 0.5))
        axes.set_yscale("log" if trial.by_ratio else "linear")
        axes.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main("lstm-gru", CLAIM, run)
