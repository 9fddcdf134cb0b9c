"""LSTM and GRU with equal parameters, on text and on the adding problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from seqtrain.analysis import pictures, seeds
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.analysis.measured_runs import metric, parameters

MODELS = ("lstm", "gru")
LEARNING_RATE = "optimizer.lr=0.006"  # for both: each ships with one of its own, and these are not part of the claim


@dataclass(frozen=True)
class Trial:
    """A task that both models are trained on."""

    overrides: tuple[str, ...]
    metric: str
    label: str
    chance: float | None = None  # what is reached without reading anything; None: nothing simple is known
    by_ratio: bool = False  # errors that shrink by powers of ten are compared as ratios


TRIALS = {
    "text": Trial(
        (
            "task=next_token",
            "tokenizer=byte",
            "tbptt.k2=64",
            "budget=params:100000",
            "trainer.max_steps=250",
            "trainer.validate_every=250",
        ),
        "bits_per_byte",
        "bits per byte",
    ),
    "adding": Trial(
        (
            "task=forecast",
            "data=adding",
            "data.length=30",
            "data.batch_size=64",
            "budget=params:12050",
            "trainer.max_steps=600",
            "trainer.validate_every=600",
        ),
        "mse_original",
        "squared error of the sum",
        chance=1 / 6,  # the variance of a sum of two numbers from 0 to 1
        by_ratio=True,
    ),
}

Measured = dict[str, dict[str, list[float]]]
"""Of each trial, of each model, the metric for each seed."""


def run(bench: Bench) -> Findings:
    """Train both models on both tasks, for the same steps on the same batches."""
    measured: Measured = {}
    sizes: dict[str, dict[str, int]] = {}
    for name, trial in TRIALS.items():
        measured[name] = {model: [] for model in MODELS}
        sizes[name] = {}
        for seed in range(1, bench.seeds + 1):
            for model in MODELS:
                words = (*trial.overrides, f"model={model}", LEARNING_RATE, f"seed={seed}")
                path = bench.train(f"{name}-{model}-{seed}", *words)
                measured[name][model].append(metric(path, trial.metric))
                sizes[name][model] = parameters(path)
    found = findings(measured, sizes)
    _draw(measured, bench.out / found.pictures[0])
    return found


def findings(measured: Measured, sizes: dict[str, dict[str, int]]) -> Findings:
    """Judge the claim that the two models do equally well, from the numbers of each seed.

    Seeds cannot prove that there is no difference. The claim fails if one model is better by more than chance.
    Otherwise it is not contradicted.

    Args:
        measured: Metric for each trial, model and seed; less is better.
        sizes: Parameters of each model in each trial.
    """
    rows: list[dict[str, str | float]] = []
    numbers: dict[str, float] = {}
    sentences = []
    is_told_apart = False
    for name, of_models in measured.items():
        trial = TRIALS[name]
        for model, values in of_models.items():
            of_seeds = seeds.spread(values)
            rows.append(
                {
                    "task": name,
                    "model": model,
                    "parameters": str(sizes[name][model]),
                    "metric": trial.metric,
                    "mean": of_seeds.mean,
                    "sd": "-" if of_seeds.deviation is None else of_seeds.deviation,
                    "by_seed": " ".join(f"{value:.4g}" for value in values),
                    "chance": "-" if trial.chance is None else trial.chance,
                }
            )
            numbers[f"{name}_{model}"] = of_seeds.mean
            numbers[f"{name}_{model}_parameters"] = float(sizes[name][model])
        judged, words = compared(of_models["lstm"], of_models["gru"], trial, len(measured))
        if math.isfinite(judged.mean):  # JSON has no other numbers
            numbers[f"{name}_log_ratio" if trial.by_ratio else f"{name}_lstm_minus_gru"] = judged.mean
        is_told_apart = is_told_apart or judged.sign is not None
        told = _told(judged)
        # Between two models that guess there is nothing to choose.
        if trial.chance is not None and min(numbers[f"{name}_{model}"] for model in MODELS) > trial.chance / 2:
            told += f", and neither has learned it (chance {trial.chance:.3f})"
        # A verdict goes on from what stands before it; each sentence behind its first begins anew.
        begin = name.capitalize() if sentences else name
        sentences.append(f"{begin} ({trial.label}), {words}: {told}")
    # Never True: that chance explains the difference does not mean that there is none.
    holds = False if is_told_apart else None
    return Findings(rows, ". ".join(sentences), holds, ("lstm-gru.png",), numbers)


def compared(lstm: list[float], gru: list[float], trial: Trial, comparisons: int) -> tuple[seeds.Difference, str]:
    """Compare the two models over seeds, by logarithms if `trial.by_ratio`; return the difference and its words.

    Args:
        lstm: Metric of the LSTM for each seed.
        gru: Metric of the GRU for the same seeds.
        trial: The task.
        comparisons: Number of differences that are judged together.
    """
    if not trial.by_ratio:
        judged = seeds.paired(lstm, gru, comparisons)
        return judged, f"LSTM minus GRU {judged.words()}"
    # From 1e-4 to 1e-5 is as far as from 1e-2 to 1e-3.
    judged = seeds.paired(list(map(_log, lstm)), list(map(_log, gru)), comparisons)
    if judged.low is None or judged.high is None:
        ratio = f"{math.exp(judged.mean):.2f} " if math.isfinite(judged.mean) else ""
        return judged, f"LSTM divided by GRU {ratio}({judged.why})"
    interval = judged.interval(f"{math.exp(judged.low):.2f}", f"{math.exp(judged.high):.2f}")
    return judged, f"LSTM divided by GRU {math.exp(judged.mean):.2f} ({interval})"


def _log(value: float) -> float:
    """Return the logarithm; -inf for an error of 0, for which there is no verdict."""
    return math.log(value) if value > 0 else -math.inf


def _told(judged: seeds.Difference) -> str:
    """Return which model is better, if the seeds show a difference."""
    if judged.low is None:
        return "nothing is told apart"
    if judged.sign is None:
        return "these seeds cannot tell them apart"
    return "the GRU is better" if judged.sign > 0 else "the LSTM is better"


def _draw(measured: Measured, path: Path) -> None:
    """Draw a line for each seed from one model to the other, since each seed is compared with itself."""
    figure = pictures.new_figure(8, 3.8)
    for axes, (name, of_models) in zip(figure.subplots(1, len(measured)), measured.items(), strict=True):
        trial = TRIALS[name]
        # The axis does not begin at 0: what is looked at is whether lines of all seeds fall to the same side.
        for seed, pair in enumerate(zip(*of_models.values(), strict=True), start=1):
            axes.plot(
                MODELS, pair, "o-", color=pictures.COLORS[(seed - 1) % len(pictures.COLORS)], label=f"seed {seed}"
            )
        if trial.chance is not None:
            axes.axhline(trial.chance, linestyle=":", color=pictures.COLORS[-1], label="always the mean")
        axes.set(title=f"{name}: lower is better", ylabel=trial.label, xlim=(-0.5, len(MODELS) - 0.5))
        if trial.by_ratio:
            axes.set_yscale("log")
        axes.legend(fontsize=8)
    pictures.save(figure, path)


DEMO = Demo(
    claim="LSTM and GRU do equally well where both have as many parameters.",
    seconds=60,
    run=run,
)
