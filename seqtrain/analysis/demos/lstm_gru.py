"""LSTM against GRU with as many parameters: on text, and on the adding problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqtrain.analysis import pictures, seeds
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.analysis.measured_runs import metric, parameters

MODELS = ("lstm", "gru")
LEARNING_RATE = "optimizer.lr=0.006"  # for both: each ships with one of its own, and these are not part of the claim


@dataclass(frozen=True)
class Trial:
    """What both models are trained on."""

    overrides: tuple[str, ...]
    metric: str
    label: str
    chance: float | None = None  # what is reached without reading anything; None: nothing simple is known


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
        1 / 6,
    ),
}

Measured = dict[str, dict[str, list[float]]]
"""Of each trial, of each model, the metric for each seed."""


def run(bench: Bench) -> Findings:
    """Trains both on both, for the same steps on the same batches."""
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
    """What the numbers of each seed say of the claim that the two cannot be told apart.

    A claim of no difference cannot be shown by seeds: it is contradicted where one is better by more than chance, and
    else it stands, no more.

    Args:
        measured: Of each trial, for each seed; less is better.
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
        judged = seeds.paired(of_models["lstm"], of_models["gru"], comparisons=len(measured))
        numbers[f"{name}_lstm_minus_gru"] = judged.mean
        is_told_apart = is_told_apart or judged.sign is not None
        told = _told(judged)
        if trial.chance is not None and min(numbers[f"{name}_{model}"] for model in MODELS) > trial.chance / 2:
            told += f", and neither has learned it (chance {trial.chance:.3f})"
        sentences.append(f"{name} ({trial.label}): LSTM minus GRU {judged.words(4)}: {told}")
    holds = False if is_told_apart else None
    return Findings(rows, "; ".join(sentences), holds, ("lstm-gru.png",), numbers)


def _told(judged: seeds.Difference) -> str:
    """Who is better, as far as the seeds tell."""
    if judged.low is None:
        return "nothing is told apart"
    if judged.sign is None:
        return "these seeds cannot tell them apart"
    return "the GRU is better" if judged.sign > 0 else "the LSTM is better"


def _draw(measured: Measured, path: Path) -> None:
    """A line for each seed, from one model to the other: seeds are compared with themselves."""
    figure = pictures.new_figure(8, 3.8)
    for axes, (name, of_models) in zip(figure.subplots(1, len(measured)), measured.items(), strict=True):
        trial = TRIALS[name]
        for seed, pair in enumerate(zip(*of_models.values(), strict=True), start=1):
            axes.plot(
                MODELS, pair, "o-", color=pictures.COLORS[(seed - 1) % len(pictures.COLORS)], label=f"seed {seed}"
            )
        if trial.chance is not None:
            axes.axhline(trial.chance, linestyle=":", color=pictures.COLORS[-1], label="always the mean")
        axes.set(title=f"{name}: lower is better", ylabel=trial.label, xlim=(-0.5, len(MODELS) - 0.5), ylim=(0, None))
        axes.legend(fontsize=8)
    pictures.save(figure, path)


DEMO = Demo(
    claim="LSTM and GRU do equally well where both have as many parameters.",
    seconds=60,
    run=run,
)
