"""A decoder that sees only the encoder's last state forgets; a decoder that attends to all states does not."""

from __future__ import annotations

import json
import random
from statistics import stdev

from matplotlib.figure import Figure

from seqtrain import Trained
from shared import COLORS, Bench, Result, Row, fmean, main, new_figure, paired, spread

CLAIM = "A decoder that sees only the encoder's last state forgets long sources; attention does not."
LETTERS = "abcdefghijklmnop"
CHANCE = 1 / len(LETTERS)  # of a letter: nothing tells it but the source
LENGTHS = range(2, 17)  # letters of a source
THIRD = len(LENGTHS) // 3
NUM_TRAIN, NUM_PER_LENGTH = 20_000, 60  # sources of train, and of validation for each length
DIMS = {"none": 78, "additive": 60}  # attention's weights are paid for by width: 72,540 and 72,360 parameters
MAX_APART = 0.02  # of the parameters
SETTINGS = (
    *("task=translation", "task.label_smoothing=0", "data=parallel", "tokenizer=word", "model=rnn_encoder_decoder"),
    *("model.dropout=0", "optimizer.lr=0.004", "trainer.max_steps=1000", "trainer.validate_every=1000"),
)

Curve = dict[int, float]
"""The share of letters that are right, by the length of the source."""


def written(bench: Bench, per_length: int) -> tuple[list[str], list[str]]:
    """Write letters to repeat; return the overrides that name the files, and the sources of validation."""
    generator = random.Random(0)  # the task is the same for all seeds of models
    train = [sources(generator, generator.randint(LENGTHS[0], LENGTHS[-1])) for _ in range(NUM_TRAIN)]
    validation = [sources(generator, length) for length in LENGTHS for _ in range(per_length)]
    files = []
    for key, texts in (("path", train), ("validation_path", validation)):
        file = bench.out / f"pairs_{key}.jsonl"
        file.write_text("".join(json.dumps({"source": text, "target": text}) + "\n" for text in texts))
        files.append(f"data.{key}={file}")
    return files, validation


def run(bench: Bench) -> Result:
    """Train both models to repeat letters in order, and measure accuracy by the length of the source."""
    files, validation = written(bench, NUM_PER_LENGTH)
    curves: dict[str, list[Curve]] = {attention: [] for attention in DIMS}
    sizes = {}
    for attention, dim in DIMS.items():
        words = (*SETTINGS, *files, f"model.attention={attention}", f"model.dim={dim}")
        for seed in range(1, bench.seeds + 1):
            trained = bench.train(f"{attention}-{seed}", *words, f"seed={seed}")
            curves[attention].append(accuracy_by_length(trained, validation))
            sizes[attention] = trained.summary["parameters"]["total"]
    rows: list[Row] = []
    for length in LENGTHS:
        row: Row = {"length": str(length)}
        for attention, of_seeds in curves.items():
            values = [curve[length] for curve in of_seeds]
            row[f"{attention}_accuracy"] = fmean(values)
            row[f"{attention}_sd"] = stdev(values) if len(values) > 1 else "-"
        rows.append(row | {"chance": CHANCE})
    return Result(rows, *judge(curves, sizes), draw(curves))


def sources(generator: random.Random, length: int) -> str:
    """Return random letters, to be said again."""
    return " ".join(generator.choices(LETTERS, k=length))


def accuracy_by_length(run: Trained, texts: list[str]) -> Curve:
    """Return the share of letters that a run writes at their position, each after its own earlier letters."""
    right = dict.fromkeys(LENGTHS, 0)
    asked = dict.fromkeys(LENGTHS, 0)
    for text, answer in zip(texts, run.translate(texts), strict=True):
        true = text.split()
        right[len(true)] += letters_right(true, answer.split())
        asked[len(true)] += len(true)
    return {length: right[length] / asked[length] for length in LENGTHS}


def letters_right(true: list[str], answer: list[str]) -> int:
    """Count letters that are correct at their position. Missing letters count as errors; extra letters are ignored."""
    return sum(map(str.__eq__, true, answer))


def judge(curves: dict[str, list[Curve]], sizes: dict[str, int]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds.

    To forget is more than to be worse. The verdict compares how much accuracy each model loses from the shortest third
    of lengths to the longest.
    """
    short, long, lost = {}, {}, {}
    for attention, of_seeds in curves.items():
        short[attention] = [fmean(curve[length] for length in LENGTHS[:THIRD]) for curve in of_seeds]
        long[attention] = [fmean(curve[length] for length in LENGTHS[-THIRD:]) for curve in of_seeds]
        lost[attention] = [before - after for before, after in zip(short[attention], long[attention], strict=True)]
    judged = paired(lost["none"], lost["additive"])
    verdict = (
        f"share of letters that are right in short sources ({LENGTHS[0]} to {LENGTHS[THIRD - 1]} letters) and in long "
        f"ones ({LENGTHS[-THIRD]} to {LENGTHS[-1]}): from the last state alone {spread(short['none'])} "
        f"and {spread(long['none'])}, with attention {spread(short['additive'])} and "
        f"{spread(long['additive'])}, by a guess {CHANCE:.3f}. Lost from short to long, last state minus "
        f"attention: {judged.words()}. Parameters: {sizes['none']:,} and {sizes['additive']:,}"
    )
    holds = None if judged.sign is None else judged.sign > 0
    # A model that never learned the task cannot lose accuracy with length, so the other one would always lose more.
    if holds and fmean(short["additive"]) < 2 * CHANCE:
        return f"{verdict}; but the model with attention has not learned the task, which says nothing", None
    # More weights would hold more letters, too.
    if (apart := abs(sizes["none"] / sizes["additive"] - 1)) > MAX_APART:
        return f"{verdict}; but their parameters lie {apart:.0%} apart, so nothing follows", None
    return verdict, holds


def draw(curves: dict[str, list[Curve]]) -> Figure:
    """Draw accuracy by length: a thin line for each seed, a thick line for the mean."""
    figure = new_figure(7, 4.2)
    axes = figure.subplots()
    labels = ("sees the last state alone", "attends to all states")
    for color, label, (attention, of_seeds) in zip(COLORS, labels, curves.items(), strict=False):
        for curve in of_seeds:
            axes.plot(LENGTHS, list(curve.values()), color=color, linewidth=0.6)
        means = [fmean(curve[length] for curve in of_seeds) for length in LENGTHS]
        axes.plot(LENGTHS, means, "o-", color=color, label=f"{label} (model.attention={attention})")
    axes.axhline(CHANCE, linestyle=":", color=COLORS[-1], label="a guess")
    axes.set(xlabel="letters of the source", ylabel="share of letters that are right", ylim=(0, 1.03))
    axes.set_title("Letters said again: one state holds only so many")
    # Below the model that forgets nothing, right of the one that forgets.
    axes.legend(fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.92))
    return figure


if __name__ == "__main__":
    main("last-state", CLAIM, run)
