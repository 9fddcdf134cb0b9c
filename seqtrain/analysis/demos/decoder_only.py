"""Translation by a decoder alone and by an encoder-decoder, with equal parameters and with half as many."""

from __future__ import annotations

from pathlib import Path

from seqtrain.analysis import pictures, seeds
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.analysis.measured_runs import metric, parameters

PARAMETERS = 200_000  # of encoder and decoder together
SETTINGS = (
    "task=translation",
    "tokenizer.size=400",
    "data.max_length=64",  # of 12,000 phrases about five are longer, and are cut
    "model.dropout=0",
    # After a third of these steps a decoder alone is far behind: it has to learn to find the place in the source that
    # comes next, for which the encoder-decoder has a part of its own.
    "trainer.max_steps=1200",
    "trainer.validate_every=1200",
)
GPT = ("model=gpt", "model.attention_window=64", "optimizer.lr=0.004")
# Rates: the better of three for each kind of model, by seed 100, which is none of those that are compared.
MODELS = {
    "encoder_decoder": ("model=encoder_decoder", "optimizer.lr=0.006", f"budget=params:{PARAMETERS}"),
    "gpt_equal": (*GPT, f"budget=params:{PARAMETERS}"),
    "gpt_half": (*GPT, "model.num_layers=2", f"budget=params:{PARAMETERS // 2}"),
}
LABELS = {
    "encoder_decoder": "encoder-decoder",
    "gpt_equal": "decoder alone, as many parameters",
    "gpt_half": "decoder alone, half as many",
}
METRICS: tuple[str, ...] = ("loss", "exact_match")
COMPARED = ("gpt_equal", "gpt_half")  # each with the encoder-decoder

Measured = dict[str, dict[str, list[float]]]
"""Of each model, of each metric, a number for each seed."""


def run(bench: Bench) -> Findings:
    """Train each model for the same steps on the same batches, and measure loss and exact matches."""
    measured: Measured = {}
    sizes = {}
    for name, overrides in MODELS.items():
        measured[name] = {each: [] for each in METRICS}
        for seed in range(1, bench.seeds + 1):
            path = bench.train(f"{name}-{seed}", *SETTINGS, *overrides, f"seed={seed}")
            sizes[name] = parameters(path)
            for each in METRICS:
                measured[name][each].append(metric(path, each))
    found = findings(measured, sizes)
    _draw(measured, sizes, bench.out / found.pictures[0])
    return found


def findings(measured: Measured, sizes: dict[str, int]) -> Findings:
    """Judge the claim that half the parameters do the same job, from the numbers of each seed.

    The claim holds if the decoder of half the size is better. It fails if that is worse by more than chance. If the
    seeds show no difference, that is no proof of equality, and there is no verdict.

    Args:
        measured: Loss and exact match of each model, for each seed.
        sizes: Parameters of each model.
    """
    rows: list[dict[str, str | float]] = []
    numbers: dict[str, float] = {}
    for name, of_metrics in measured.items():
        row: dict[str, str | float] = {"model": name, "parameters": str(sizes[name])}
        for each, values in of_metrics.items():
            row[each] = seeds.spread(values).words()
            row[f"{each}_by_seed"] = " ".join(f"{value:.3f}" for value in values)
            numbers[f"{name}_{each}"] = seeds.spread(values).mean
        numbers[f"{name}_parameters"] = float(sizes[name])
        rows.append(row)
    words, signs = [], {}
    for name in COMPARED:
        # By the loss: exact matches are few, and jump.
        judged = seeds.paired(measured[name]["loss"], measured["encoder_decoder"]["loss"], comparisons=len(COMPARED))
        signs[name] = judged.sign
        numbers[f"{name}_loss_apart"] = judged.mean
        share = sizes[name] / sizes["encoder_decoder"]
        words.append(f"a decoder alone with {share:.0%} of the parameters: {judged.words()}{_told(judged)}")
    verdict = f"Loss in nats a token of the target, minus that of the encoder-decoder: {'; '.join(words)}"
    # The other comparison tells whether it is the size or the kind of model that makes the difference.
    half = signs["gpt_half"]
    return Findings(rows, verdict, None if half is None else half < 0, ("decoder-only.png",), numbers)


def _told(judged: seeds.Difference) -> str:
    """Return the meaning of a difference in loss, in words."""
    if judged.low is None:
        return ""
    if judged.sign is None:
        return ", so these seeds cannot tell them apart"
    return ", better" if judged.sign < 0 else ", worse"


def _draw(measured: Measured, sizes: dict[str, int], path: Path) -> None:
    """Draw a point for each seed, and their mean."""
    figure = pictures.new_figure(9, 3.6)
    axes = dict(zip(METRICS, figure.subplots(1, 2), strict=True))
    for place, (name, of_metrics) in enumerate(measured.items()):
        color = pictures.COLORS[place]
        for each, values in of_metrics.items():
            mean = seeds.spread(values).mean
            axes[each].bar(place, mean, color=color, alpha=0.35, label=f"{LABELS[name]} ({sizes[name]:,})")
            axes[each].plot([place] * len(values), values, "o", color=color)
            # Inside the bar, where no dot of a seed can lie over it.
            axes[each].text(place, mean / 2, f"{mean:.3f}", ha="center")
            axes[each].set_xticks([])
    axes["loss"].set(ylabel="nats a token of the target", title="loss (lower is better)")
    axes["exact_match"].set(ylabel="share of translations", title="exact match (higher is better)")
    figure.legend(*axes["loss"].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.suptitle("translation; a dot is a seed, in brackets are parameters", fontsize=10)
    pictures.save(figure, path)


DEMO = Demo(
    claim="A decoder alone does the job of an encoder-decoder with half the parameters.",
    seconds=200,
    run=run,
)
