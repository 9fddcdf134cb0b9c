"""What the same cost buys: LSTM and GPT with equal parameters at equal FLOPs, and at equal seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import seqtrain
from shared import Bench, Numbers, Result, Row, dots, fmean, main, new_figure, paired, spread

CLAIM = "For the same cost attention wins where something far away must be found, and a recurrence elsewhere."
MODELS = {
    "lstm": ("model=lstm",),
    "gpt": ("model=gpt", "model.num_layers=2", "model.num_heads=2"),
}
SIZE = "params:40000"


class Trial(NamedTuple):
    """A task that all models are trained on."""

    words: Sequence[str]
    flops: str
    metric: str
    better: int  # 1: more is better, -1: less is
    every: int  # steps between validations: the curve that equal seconds are read from


RECALL = ("data.shortest=32", "data.longest=32", "data.vocab=64", "data.pairs=4", "data.batch_tokens=2048")
COPY = ("data.shortest=40", "data.longest=40", "data.batch_tokens=2048")
TRIALS = {
    "copy": Trial(("task=tag", "data=copy", *COPY), "3e11", "accuracy", 1, 100),
    "recall": Trial(("task=tag", "data=recall", *RECALL), "3e11", "accuracy", 1, 100),
    "text": Trial(
        ("task=next_token", "tokenizer=byte", "tbptt.k2=64", "data.batch_size=16"), "1e11", "bits_per_byte", -1, 60
    ),
    "series": Trial(("task=forecast",), "1.6e11", "mse", -1, 40),
}
AXES: tuple[Literal["flops", "seconds"], ...] = ("flops", "seconds")


def run(bench: Bench) -> Result:
    """Train each model for the same FLOPs; compare at the end, and at the seconds that all of them reached."""
    rows: list[Row] = []
    figure = new_figure(12, 2.2)
    sentences = []
    found: dict[str, str | None] = {}
    for axes, (name, trial) in zip(figure.subplots(1, len(TRIALS)), TRIALS.items(), strict=True):
        numbers: dict[str, Numbers] = {axis: {model: [] for model in MODELS} for axis in AXES}
        for seed in range(1, bench.seeds + 1):
            runs = []
            for model, words in MODELS.items():
                budget = f"budget=[{SIZE},flops:{trial.flops}]"
                settings = (budget, f"trainer.validate_every={trial.every}", "callbacks=none", f"seed={seed}")
                runs.append(bench.train(f"{name}-{model}-{seed}", *trial.words, *words, *settings).directory)
            for axis in AXES:  # seed by seed: both models of a seed ran soon after each other, on the same machine
                for model, value in at_equal(axis, runs, trial.metric).items():
                    numbers[axis][model].append(value)
        dots(axes, numbers["flops"])
        axes.set(xlabel=f"{trial.metric}: {'more' if trial.better > 0 else 'less'} is better", title=name)
        for axis in AXES:
            rows += [{"task": name, "equal": axis} | {m: fmean(v) for m, v in numbers[axis].items()}]
            winner, words = best(numbers[axis], trial.better)
            found[f"{name} {axis}"] = winner
            sentences.append(f"{name} ({trial.metric}), equal {axis}: {words}")
    attention = found["recall flops"]
    holds = None if attention is None else attention == "gpt"
    return Result(rows, "; ".join(sentences), holds, figure)


def at_equal(axis: Literal["flops", "seconds"], runs: list[Path], metric: str) -> dict[str, float]:
    """Return the metric of each model at the largest cost that all runs have reached; NaN if one has none there."""
    try:
        table = seqtrain.compare(*runs, x=axis, metric=metric).runs
    except seqtrain.UserError:  # one run ends before the first validation of another
        return dict.fromkeys(MODELS, math.nan)
    return dict(zip(table["model"], table["value"], strict=True))


def best(numbers: Numbers, better: int) -> tuple[str | None, str]:
    """Return the model that beats the other one by its seeds, or None; and words."""
    told = ", ".join(f"{model} {spread(values)}" for model, values in numbers.items())
    left, right = numbers
    judged = paired(numbers[left], numbers[right], comparisons=len(TRIALS) * len(AXES))
    winner = None if judged.sign is None else left if judged.sign == better else right
    return winner, f"{told}: {left} minus {right} {judged.words()}" + (f", {winner} wins" if winner else "")


if __name__ == "__main__":
    main("same-cost", CLAIM, run)
