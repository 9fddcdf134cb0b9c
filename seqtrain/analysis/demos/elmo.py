"""Pretraining without labels, shallow (ELMo) and deep (BERT), for a task with few labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.analysis import opinions, pictures, seeds
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.analysis.measured_runs import SPLIT, metric, parameters
from seqtrain.runs.directory import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_UNLABELLED, NUM_LABELLED, NUM_TEST = 6000, 30, 500
CHANCE = 1 / len(opinions.LABELS)
MAX_APART = 0.05  # of the parameters
ELMO = ("model=elmo", "model.dim=64")
HALF = ("model=lstm", "model.dim=32", "model.num_layers=2")  # one direction of it
BERT = ("model=bert", "model.dim=40", "model.dim_feedforward=188")
TEXT = ("data=text", "tokenizer=word", "callbacks=none", "trainer.max_steps=800", "trainer.validate_every=800")
# With these ELMo gets well below a bigram, which does not know the two camps, in so few steps.
RATES = ("optimizer=muon", "optimizer.lr=0.02", "optimizer.lr_rest=0.01")
STREAM = ("task=next_token", *HALF, "tbptt=windows", "tbptt.k2=32", "data.batch_size=32")
PRETRAINED = {
    "elmo": ("task=bidirectional_lm", *ELMO, "data.batch_tokens=1024"),
    "forward": STREAM,
    "backward": (*STREAM, "task.direction=backward"),
    "bert": (
        "task=masked_lm",
        *BERT,
        "data.batch_tokens=1024",
        "task.mask_prob=0.3",
        "task.random_share=0",
        "task.pseudo_examples=0",
    ),
}
TUNED = (
    "task=sentiment",
    "data=labelled",
    "data.batch_tokens=1024",
    # The mean over all positions, since every word of opinion carries the same label.
    "task.pool=mean",
    "callbacks=none",
    "trainer.max_steps=150",
    "trainer.validate_every=150",
)
STACKS = "freeze=[embed,forwards,backwards]"  # what is left to train: the mix of layers, and the head


@dataclass(frozen=True)
class Variant:
    """A way to train a classifier."""

    label: str  # in the picture
    model: tuple[str, ...]
    origins: tuple[str, ...] = ()  # what of PRETRAINED it begins with
    options: tuple[str, ...] = ()


# All have the labels, the batches and the steps of tuning in common. A frozen model has a larger rate: its head alone
# has to come from nothing to where the labels are.
VARIANTS = {
    "elmo_scratch": Variant("ELMo, from scratch", ELMO),
    "elmo_tuned": Variant("ELMo, pretrained", ELMO, ("elmo",)),
    "elmo_frozen": Variant("ELMo, pretrained, frozen", ELMO, ("elmo",), (STACKS, "optimizer.lr=0.03")),
    "joined_tuned": Variant("ELMo of two runs", ELMO, ("forward", "backward")),
    "joined_frozen": Variant("ELMo of two runs, frozen", ELMO, ("forward", "backward"), (STACKS, "optimizer.lr=0.03")),
    "bert_scratch": Variant("BERT, from scratch", BERT),
    "bert_tuned": Variant("BERT, pretrained", BERT, ("bert",)),
    "bert_frozen": Variant("BERT, pretrained, frozen", BERT, ("bert",), ("freeze=[all]", "optimizer.lr=0.03")),
}
LINEAR = "linear_model"
# Each kind as its paper uses it: ELMo's layers stay, and a mix of them is learned; BERT is tuned as a whole.
COMPARED = {
    "elmo_gain": ("elmo_frozen", "elmo_scratch", "Pretraining adds to ELMo (frozen)"),
    "bert_gain": ("bert_tuned", "bert_scratch", "Pretraining adds to BERT (tuned)"),
    "shallow_over_deep": ("elmo_frozen", "bert_tuned", "ELMo (frozen) minus BERT (tuned)"),
}


@dataclass(frozen=True)
class Measured:
    """The results of the runs: for each variant, a number for each seed."""

    accuracy: dict[str, list[float]]  # also of the linear model
    mix: dict[str, list[list[float]]]  # of each ELMo: for each seed the weight of each layer, the embedding first
    pretrained: dict[str, list[float]]  # loss in nats a token less that of the bigram on the same text
    parameters: dict[str, int]


def run(bench: Bench) -> Findings:
    """Pretrain both kinds of model on the same text, tune them on the same few labels, and measure accuracy."""
    measured = Measured({}, {}, {}, {})
    for seed in range(1, bench.seeds + 1):
        _run_seed(bench, seed, measured)
    found = findings(measured)
    _draw(measured, bench.out / found.pictures[0])
    return found


def _run_seed(bench: Bench, seed: int, measured: Measured) -> None:
    """Run all variants of a seed, which has its own words, texts and labels."""
    text, labels = write_reviews(bench.out, seed)
    origins = {}
    for name, overrides in PRETRAINED.items():
        path = bench.train(f"{name}-text-{seed}", *overrides, *TEXT, *RATES, *text, f"seed={seed}")
        origins[name] = path
        measured.pretrained.setdefault(name, []).append(over_bigram(path))
    for name, variant in VARIANTS.items():
        begin = "tokenizer.min_count=1"
        if variant.origins:
            begin = "init_from=" + _list([str(origins[origin]) for origin in variant.origins])
        path = bench.train(f"{name}-{seed}", *TUNED, *variant.model, *variant.options, begin, *labels, f"seed={seed}")
        measured.accuracy.setdefault(name, []).append(metric(path, "accuracy"))
        measured.parameters[name] = parameters(path)
        if variant.model == ELMO:
            measured.mix.setdefault(name, []).append(mixing_weights(path))
        if name == "elmo_scratch":
            linear = _linear(path)
            if linear is None:
                bench.say("no linear model beside them: it needs scikit-learn, pip install 'seqtrain[linear]'")
            else:
                measured.accuracy.setdefault(LINEAR, []).append(linear)


def _list(paths: list[str]) -> str:
    """Format one run as its path, and two runs as a list."""
    return paths[0] if len(paths) == 1 else f"[{','.join(paths)}]"


def write_reviews(folder: Path, seed: int) -> tuple[list[str], list[str]]:
    """Write the reviews of a seed into four files; return the overrides for texts, and those for labels."""
    made = opinions.reviews(seed, NUM_UNLABELLED, NUM_LABELLED, NUM_TEST)
    files = {}
    for part, rows in made._asdict().items():
        files[part] = folder / f"{part}-{seed}.jsonl"
        opinions.write(files[part], rows, with_labels=part in ("labelled", "test"))
    text = [f"data.path={files['unlabelled']}", f"data.validation_path={files['unlabelled_validation']}"]
    return text, [f"data.path={files['labelled']}", f"data.validation_path={files['test']}"]


def over_bigram(path: Path) -> float:
    """Return a language model's loss minus a bigram's, in nats a token. From 0 on it knows no more than neighbours."""
    baselines = Run.open(path).summary.baselines[SPLIT]
    # A masked model is put beside what stands before the hidden token, as its task has it.
    bigram = baselines.get("bigram") or baselines["left_bigram"]
    return metric(path, "loss") - float(bigram["loss"])


def _linear(path: Path) -> float | None:
    found = Run.open(path).summary.baselines[SPLIT].get("linear")
    return None if found is None else float(found["accuracy"])


def mixing_weights(path: Path) -> list[float]:
    """Return the weight of each layer in a trained ELMo's states, the embedding first."""
    from seqtrain.inference.opened import open_run

    return open_run(path, "last").model.layer_weights().tolist()  # type: ignore[operator]


def findings(measured: Measured) -> Findings:
    """Judge the claim from the accuracies of each seed, and report the weights of the layers."""
    rows: list[dict[str, str | float]] = []
    numbers = {"chance": CHANCE, "labels": float(NUM_LABELLED)}
    for name, values in measured.accuracy.items():
        of_seeds = seeds.spread(values)
        row: dict[str, str | float] = {"variant": name, "accuracy": of_seeds.mean}
        row["sd"] = "-" if of_seeds.deviation is None else of_seeds.deviation
        row["parameters"] = str(measured.parameters.get(name, "-"))
        weights = _mean_mix(measured.mix[name]) if name in measured.mix else ["-"] * 3
        for layer, weight in enumerate(weights):
            row[f"layer_{layer}"] = weight
            if isinstance(weight, float):
                numbers[f"{name}_layer_{layer}"] = weight
        rows.append(row)
        numbers[f"{name}_accuracy"] = of_seeds.mean
    for name, values in measured.pretrained.items():
        numbers[f"{name}_over_bigram"] = seeds.spread(values).mean
    sentences = [_accuracies(measured)]
    judged = {}
    for name, (first, second, words) in COMPARED.items():
        judged[name] = seeds.paired(measured.accuracy[first], measured.accuracy[second], len(COMPARED))
        numbers[name] = judged[name].mean
        sentences.append(f"{words}: {judged[name].words()}{_told(judged[name])}")
    holds = _holds([judged["elmo_gain"], judged["bert_gain"]])
    sentences.append(_layers(measured))
    # A model that learned nothing from the text has nothing to transfer.
    failed = [name for name, values in measured.pretrained.items() if max(values) >= 0]
    if failed:
        sentences.append(f"But {' and '.join(failed)} did not get below a bigram of the text, in some seed")
        holds = None
    apart = abs(measured.parameters["elmo_tuned"] / measured.parameters["bert_tuned"] - 1)
    numbers["parameters_apart"] = apart
    if apart > MAX_APART:
        sentences.append(f"But the parameters of the two kinds lie {apart:.0%} apart, so nothing follows")
        holds = None
    return Findings(rows, ". ".join(sentences), holds, ("elmo.png",), numbers)


def _holds(gains: list[seeds.Difference]) -> bool | None:
    """Return True if both kinds gain, False if one loses, None if the seeds do not tell."""
    signs = [gain.sign for gain in gains]
    if -1 in signs:
        return False
    return None if None in signs else True


def _told(judged: seeds.Difference) -> str:
    """Return a remark if the interval of a difference contains 0."""
    return ", so these seeds do not tell" if judged.low is not None and judged.sign is None else ""


def _accuracies(measured: Measured) -> str:
    """Return the accuracies of the compared variants and of the linear model, in words."""

    def share(name: str) -> str:
        return seeds.spread(measured.accuracy[name]).words()

    words = (
        f"Accuracy after {NUM_LABELLED} labels, from scratch: ELMo {share('elmo_scratch')}, BERT "
        f"{share('bert_scratch')}. Pretrained on {NUM_UNLABELLED:,} texts without labels: ELMo frozen "
        f"{share('elmo_frozen')}, tuned {share('elmo_tuned')}, joined from two runs and tuned {share('joined_tuned')}; "
        f"BERT frozen {share('bert_frozen')}, tuned {share('bert_tuned')}"
    )
    return f"{words}. A linear model: {share(LINEAR)}" if LINEAR in measured.accuracy else words


def _layers(measured: Measured) -> str:
    """Return the layer with the largest weight in the frozen ELMo. Other variants also trained the layers."""
    weights = _mean_mix(measured.mix["elmo_frozen"])
    largest = weights.index(max(weights))
    # At first all layers weigh the same; a mix that stayed there has chosen nothing.
    return (
        f"The mix over the frozen layers gives layer {largest} the most, {max(weights):.2f} of 1 "
        f"(at first {1 / len(weights):.2f})"
    )


def _mean_mix(of_seeds: list[list[float]]) -> list[float]:
    means = []
    for weights in zip(*of_seeds, strict=True):
        means.append(seeds.spread(weights).mean)
    return means


# -- picture -----------------------------------------------------------------------------------------------------


def _draw(measured: Measured, path: Path) -> None:
    """Draw each variant's accuracy, a point for each seed (left), and the weights of the layers (right)."""
    figure = pictures.new_figure(12, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_accuracy(left, measured.accuracy)
    _draw_mix(right, measured.mix)
    pictures.save(figure, path)


def _draw_accuracy(axes: Axes, accuracy: dict[str, list[float]]) -> None:
    for place, (name, variant) in enumerate(VARIANTS.items()):
        color = pictures.COLORS[0 if variant.model == ELMO else 1]
        mean = seeds.spread(accuracy[name]).mean
        # From scratch pale: what the colour stands for is pretraining.
        axes.barh(place, mean, color=color, alpha=0.7 if variant.origins else 0.25)
        axes.plot(accuracy[name], [place] * len(accuracy[name]), "o", color="black", markersize=3)
        axes.text(0.01, place, f"{mean:.3f}", va="center", fontsize=8)
    axes.axvline(CHANCE, linestyle=":", color=pictures.COLORS[-1], label="a guess")
    if LINEAR in accuracy:
        linear = seeds.spread(accuracy[LINEAR]).mean
        axes.axvline(linear, linestyle="--", color=pictures.COLORS[2], label=f"linear model {linear:.3f}")
    axes.set_yticks(range(len(VARIANTS)), [variant.label for variant in VARIANTS.values()])
    axes.invert_yaxis()
    axes.set(xlabel="accuracy of test (points: seeds)", xlim=(0, 1.03))
    axes.set_title(f"{NUM_LABELLED} labels, {NUM_UNLABELLED:,} texts without", fontsize=10)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(-0.45, -0.02))  # where no bar is


def _draw_mix(axes: Axes, mix: dict[str, list[list[float]]]) -> None:
    width = 0.8 / len(mix)
    layers = 0
    for place, (name, of_seeds) in enumerate(mix.items()):
        weights = _mean_mix(of_seeds)
        layers = len(weights)
        places = [layer + (place - (len(mix) - 1) / 2) * width for layer in range(layers)]
        axes.bar(places, weights, width, color=pictures.COLORS[place], label=VARIANTS[name].label)
    axes.axhline(1 / layers, linestyle=":", color=pictures.COLORS[-1], label="at first")
    names = ["embedding"]
    for layer in range(1, layers):
        names.append(f"layer {layer}")
    axes.set_xticks(range(layers), names)
    axes.set(ylabel="weight in the mix (they sum to 1)", ylim=(0, 1))
    axes.set_title("ELMo: which layers the classifier reads", fontsize=10)
    axes.legend(fontsize=8)


DEMO = Demo(
    claim="Pretraining without labels helps where labels are few, both shallow (ELMo: two language models, one of each "
    "direction, their layers mixed by learned weights) and deep (BERT: every layer sees both sides).",
    seconds=90,
    run=run,
)
