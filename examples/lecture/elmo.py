"""Pretraining without labels, shallow (ELMo) and deep (BERT), for a task with few labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import stdev
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from reviews import LABELS, reviews, write
from shared import COLORS, Bench, Difference, Result, Row, fmean, main, new_figure, paired, spread

CLAIM = (
    "Pretraining without labels helps where labels are few, both shallow (ELMo: two language models, one of each "
    "direction, their layers mixed by learned weights) and deep (BERT: every layer sees both sides)."
)
NUM_UNLABELLED, NUM_LABELLED, NUM_TEST = 6000, 30, 500
CHANCE = 1 / len(LABELS)
MAX_APART = 0.05  # of the parameters
ELMO = ("model=elmo", "model.dim=64")
HALF = ("model=lstm", "model.dim=32", "model.num_layers=2")  # one direction of it
BERT = ("model=bert", "model.dim=40", "model.dim_feedforward=188")
TEXT = ("data=text", "tokenizer=word", "callbacks=none", "trainer.max_steps=800", "trainer.validate_every=800")
# With these ELMo gets well below a bigram, which does not know the two camps, in so few steps.
RATES = ("optimizer=muon", "optimizer.lr=0.02", "optimizer.lr_rest=0.01")
STREAM = ("task=next_token", *HALF, "tbptt=windows", "tbptt.k2=32", "data.batch_size=32")
HIDDEN = ("task.mask_prob=0.3", "task.random_share=0", "task.pseudo_examples=0")
PRETRAINED = {
    "elmo": ("task=bidirectional_lm", *ELMO, "data.batch_tokens=1024"),
    "forward": STREAM,
    "backward": (*STREAM, "task.direction=backward"),
    "bert": ("task=masked_lm", *BERT, "data.batch_tokens=1024", *HIDDEN),
}
TUNED = (
    # The mean over all positions, since every word of opinion carries the same label.
    *("task=sentiment", "data=labelled", "data.batch_tokens=1024", "task.pool=mean", "callbacks=none"),
    *("trainer.max_steps=150", "trainer.validate_every=150"),
)
# What is left to train: the mix of layers, and the head. A frozen model has a larger rate: its head alone has to come
# from nothing to where the labels are.
STACKS = ("freeze=[embed,forwards,backwards]", "optimizer.lr=0.03")


class Variant(NamedTuple):
    """A way to train a classifier. All have the labels, the batches and the steps of tuning in common."""

    label: str  # in the picture
    model: tuple[str, ...]
    origins: tuple[str, ...] = ()  # what of PRETRAINED it begins with
    options: tuple[str, ...] = ()


VARIANTS = {
    "elmo_scratch": Variant("ELMo, from scratch", ELMO),
    "elmo_tuned": Variant("ELMo, pretrained", ELMO, ("elmo",)),
    "elmo_frozen": Variant("ELMo, pretrained, frozen", ELMO, ("elmo",), STACKS),
    "joined_tuned": Variant("ELMo of two runs", ELMO, ("forward", "backward")),
    "joined_frozen": Variant("ELMo of two runs, frozen", ELMO, ("forward", "backward"), STACKS),
    "bert_scratch": Variant("BERT, from scratch", BERT),
    "bert_tuned": Variant("BERT, pretrained", BERT, ("bert",)),
    "bert_frozen": Variant("BERT, pretrained, frozen", BERT, ("bert",), ("freeze=[all]", "optimizer.lr=0.03")),
}
LINEAR = "linear_model"
# Each kind as its paper uses it: ELMo's layers stay, and a mix of them is learned; BERT is tuned as a whole.
COMPARED = (
    ("elmo_frozen", "elmo_scratch", "Pretraining adds to ELMo (frozen)"),
    ("bert_tuned", "bert_scratch", "Pretraining adds to BERT (tuned)"),
    ("elmo_frozen", "bert_tuned", "ELMo (frozen) minus BERT (tuned)"),
)


@dataclass(frozen=True)
class Measured:
    """The results of the runs: for each variant, a number for each seed."""

    accuracy: dict[str, list[float]] = field(default_factory=dict)  # also of the linear model
    mix: dict[str, list[list[float]]] = field(default_factory=dict)  # of each ELMo: the weight of each layer
    pretrained: dict[str, list[float]] = field(default_factory=dict)  # loss less that of the bigram on the same text
    parameters: dict[str, int] = field(default_factory=dict)


def run(bench: Bench) -> Result:
    """Pretrain both kinds of model on the same text, tune them on the same few labels, and measure accuracy."""
    measured = Measured()
    for seed in range(1, bench.seeds + 1):
        run_seed(bench, seed, measured)
    rows: list[Row] = []
    for name, values in measured.accuracy.items():
        row: Row = {"variant": name, "accuracy": fmean(values), "sd": stdev(values) if len(values) > 1 else "-"}
        row["parameters"] = str(measured.parameters.get(name, "-"))
        weights = means(measured.mix[name]) if name in measured.mix else ["-"] * 3
        rows.append(row | {f"layer_{layer}": weight for layer, weight in enumerate(weights)})
    return Result(rows, *judge(measured), draw(measured))


def run_seed(bench: Bench, seed: int, measured: Measured) -> None:
    """Run all variants of a seed, which has its own words, texts and labels."""
    text, labels = write(bench.out, seed, reviews(seed, NUM_UNLABELLED, NUM_LABELLED, NUM_TEST))
    origins = {}
    for name, overrides in PRETRAINED.items():
        trained = bench.train(f"{name}-text-{seed}", *overrides, *TEXT, *RATES, *text, f"seed={seed}")
        origins[name] = str(trained.directory)
        # A masked model is put beside what stands before the hidden token, as its task has it.
        baselines = trained.summary["baselines"]["validation"]
        bigram = baselines.get("bigram") or baselines["left_bigram"]
        measured.pretrained.setdefault(name, []).append(trained.metrics["validation"]["loss"] - bigram["loss"])
    for name, variant in VARIANTS.items():
        begin = "tokenizer.min_count=1"
        if variant.origins:
            paths = [origins[origin] for origin in variant.origins]
            begin = f"init_from={paths[0] if len(paths) == 1 else '[' + ','.join(paths) + ']'}"
        words = (*TUNED, *variant.model, *variant.options, begin, *labels, f"seed={seed}")
        trained = bench.train(f"{name}-{seed}", *words)
        measured.accuracy.setdefault(name, []).append(trained.metrics["validation"]["accuracy"])
        measured.parameters[name] = trained.summary["parameters"]["total"]
        if variant.model == ELMO:
            model: Any = trained.model
            measured.mix.setdefault(name, []).append(model.layer_weights().tolist())
        linear = trained.summary["baselines"]["validation"].get("linear")  # needs scikit-learn
        if name == "elmo_scratch" and linear is not None:
            measured.accuracy.setdefault(LINEAR, []).append(linear["accuracy"])


def means(of_seeds: list[list[float]]) -> list[float]:
    """Return the mean weight of each layer over seeds."""
    return [fmean(weights) for weights in zip(*of_seeds, strict=True)]


def judge(measured: Measured) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether both kinds gain; None if the seeds do not tell."""
    share = {name: spread(values) for name, values in measured.accuracy.items()}
    sentences = [
        f"Accuracy after {NUM_LABELLED} labels, from scratch: ELMo {share['elmo_scratch']}, BERT "
        f"{share['bert_scratch']}. Pretrained on {NUM_UNLABELLED:,} texts without labels: ELMo frozen "
        f"{share['elmo_frozen']}, tuned {share['elmo_tuned']}, joined from two runs and tuned {share['joined_tuned']}; "
        f"BERT frozen {share['bert_frozen']}, tuned {share['bert_tuned']}"
    ]
    if LINEAR in share:
        sentences.append(f"A linear model: {share[LINEAR]}")
    signs = []
    for first, second, words in COMPARED:
        judged = paired(measured.accuracy[first], measured.accuracy[second], len(COMPARED))
        signs.append(judged.sign)
        sentences.append(f"{words}: {judged.words()}{told(judged)}")
    gains = signs[:2]
    holds = False if -1 in gains else None if None in gains else True
    # Frozen: other variants also trained the layers. At first all weigh the same; a mix that stayed has chosen nothing.
    weights = means(measured.mix["elmo_frozen"])
    sentences.append(
        f"The mix over the frozen layers gives layer {weights.index(max(weights))} the most, {max(weights):.2f} of 1 "
        f"(at first {1 / len(weights):.2f})"
    )
    # A model that learned nothing from the text has nothing to transfer.
    failed = [name for name, values in measured.pretrained.items() if max(values) >= 0]
    if failed:
        sentences.append(f"But {' and '.join(failed)} did not get below a bigram of the text, in some seed")
    apart = abs(measured.parameters["elmo_tuned"] / measured.parameters["bert_tuned"] - 1)
    if apart > MAX_APART:
        sentences.append(f"But the parameters of the two kinds lie {apart:.0%} apart, so nothing follows")
    return ". ".join(sentences), None if failed or apart > MAX_APART else holds


def told(judged: Difference) -> str:
    """Return a remark if the interval of a difference contains 0."""
    return ", so these seeds do not tell" if judged.interval is not None and judged.sign is None else ""


def draw(measured: Measured) -> Figure:
    """Draw each variant's accuracy, a point for each seed (left), and the weights of the layers (right)."""
    figure = new_figure(12, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for place, (name, variant) in enumerate(VARIANTS.items()):
        values = measured.accuracy[name]
        # From scratch pale: what the colour stands for is pretraining.
        color = COLORS[0 if variant.model == ELMO else 1]
        left.barh(place, fmean(values), color=color, alpha=0.7 if variant.origins else 0.25)
        left.plot(values, [place] * len(values), "o", color="black", markersize=3)
        left.text(0.01, place, f"{fmean(values):.3f}", va="center", fontsize=8)
    left.axvline(CHANCE, linestyle=":", color=COLORS[-1], label="a guess")
    if LINEAR in measured.accuracy:
        linear = fmean(measured.accuracy[LINEAR])
        left.axvline(linear, linestyle="--", color=COLORS[2], label=f"linear model {linear:.3f}")
    left.set_yticks(range(len(VARIANTS)), [variant.label for variant in VARIANTS.values()])
    left.invert_yaxis()
    left.set(xlabel="accuracy of test (points: seeds)", xlim=(0, 1.03))
    left.set_title(f"{NUM_LABELLED} labels, {NUM_UNLABELLED:,} texts without", fontsize=10)
    left.legend(fontsize=8, loc="upper left", bbox_to_anchor=(-0.45, -0.02))  # where no bar is
    for place, (name, of_seeds) in enumerate(measured.mix.items()):
        places = [layer + (place - (len(measured.mix) - 1) / 2) * 0.16 for layer in range(3)]
        right.bar(places, means(of_seeds), 0.16, color=COLORS[place], label=VARIANTS[name].label)
    right.axhline(1 / 3, linestyle=":", color=COLORS[-1], label="at first")
    right.set_xticks(range(3), ["embedding", "layer 1", "layer 2"])
    right.set(ylabel="weight in the mix (they sum to 1)", ylim=(0, 1))
    right.set_title("ELMo: which layers the classifier reads", fontsize=10)
    right.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main("elmo", CLAIM, run)
