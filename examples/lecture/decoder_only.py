"""Translation by a decoder alone and by an encoder-decoder, with equal parameters and with half as many."""

from __future__ import annotations

from matplotlib.figure import Figure

from shared import COLORS, Bench, Difference, Result, Row, fmean, main, new_figure, paired, spread

CLAIM = "A decoder alone does the job of an encoder-decoder with half the parameters."
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
LABELS = ("encoder-decoder", "decoder alone, as many parameters", "decoder alone, half as many")
METRICS = ("loss", "exact_match")

Measured = dict[str, dict[str, list[float]]]
"""Of each model, of each metric, a number for each seed."""


def run(bench: Bench) -> Result:
    """Train each model for the same steps on the same batches, and measure loss and exact matches."""
    measured: Measured = {}
    sizes, rows = {}, []
    for name, overrides in MODELS.items():
        measured[name] = {each: [] for each in METRICS}
        for seed in range(1, bench.seeds + 1):
            trained = bench.train(f"{name}-{seed}", *SETTINGS, *overrides, f"seed={seed}")
            sizes[name] = trained.summary["parameters"]["total"]
            for each in METRICS:
                measured[name][each].append(trained.metrics["validation"][each])
        row: Row = {"model": name, "parameters": str(sizes[name])}
        for each, values in measured[name].items():
            row |= {each: spread(values), f"{each}_by_seed": " ".join(f"{value:.3f}" for value in values)}
        rows.append(row)
    return Result(rows, *judge(measured, sizes), draw(measured, sizes))


def judge(measured: Measured, sizes: dict[str, int]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether half the parameters do the same job.

    The claim holds if the decoder of half the size is better. It fails if that is worse by more than chance. If the
    seeds show no difference, that is no proof of equality, and there is no verdict.
    """
    words, sign = [], None
    # The comparison at equal size tells whether it is the size or the kind of model that makes the difference.
    for name in ("gpt_equal", "gpt_half"):
        # By the loss: exact matches are few, and jump.
        judged = paired(measured[name]["loss"], measured["encoder_decoder"]["loss"], comparisons=2)
        sign = judged.sign
        share = sizes[name] / sizes["encoder_decoder"]
        words.append(f"a decoder alone with {share:.0%} of the parameters: {judged.words()}{told(judged)}")
    verdict = f"Loss in nats a token of the target, minus that of the encoder-decoder: {'; '.join(words)}"
    return verdict, None if sign is None else sign < 0


def told(judged: Difference) -> str:
    """Return the meaning of a difference in loss, in words."""
    if judged.interval is None:
        return ""
    if judged.sign is None:
        return ", so these seeds cannot tell them apart"
    return ", better" if judged.sign < 0 else ", worse"


def draw(measured: Measured, sizes: dict[str, int]) -> Figure:
    """Draw a point for each seed, and their mean."""
    figure = new_figure(9, 3.6)
    panels = figure.subplots(1, 2)
    for place, (name, color, label) in enumerate(zip(measured, COLORS, LABELS, strict=False)):
        for axes, values in zip(panels, measured[name].values(), strict=True):
            mean = fmean(values)
            axes.bar(place, mean, color=color, alpha=0.35, label=f"{label} ({sizes[name]:,})")
            axes.plot([place] * len(values), values, "o", color=color)
            # Inside the bar, where no dot of a seed can lie over it.
            axes.text(place, mean / 2, f"{mean:.3f}", ha="center")
            axes.set_xticks([])
    panels[0].set(ylabel="nats a token of the target", title="loss (lower is better)")
    panels[1].set(ylabel="share of translations", title="exact match (higher is better)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.suptitle("translation; a dot is a seed, in brackets are parameters", fontsize=10)
    return figure


if __name__ == "__main__":
    main("decoder-only", CLAIM, run)
