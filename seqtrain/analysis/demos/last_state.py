"""A decoder that sees only the encoder's last state forgets; a decoder that attends to all states does not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from seqtrain.analysis import pictures, seeds
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.analysis.measured_runs import SPLIT, open_measured, parameters
from seqtrain.files.atomic import write_text

LETTERS = "abcdefghijklmnop"
CHANCE = 1 / len(LETTERS)  # of a letter: nothing tells it but the source
SHORTEST, LONGEST = 2, 16  # letters of a source
NUM_TRAIN, NUM_PER_LENGTH = 20_000, 60  # sources of train, and of validation for each length
DIMS = {"none": 78, "additive": 60}  # attention's weights are paid for by width: 72,540 and 72,360 parameters
MAX_APART = 0.02  # of the parameters
SETTINGS = (
    "task=translation",
    "task.label_smoothing=0",
    "data=parallel",
    "tokenizer=word",
    "model=rnn_encoder_decoder",
    "model.dropout=0",
    "optimizer.lr=0.004",
    "trainer.max_steps=1000",
    "trainer.validate_every=1000",
)

Curve = dict[int, float]
"""The share of letters that are right, by the length of the source."""


def run(bench: Bench) -> Findings:
    """Train both models to repeat letters in order, and measure accuracy by the length of the source."""
    files = _write_pairs(bench.out)
    curves: dict[str, list[Curve]] = {}
    sizes = {}
    for attention, dim in DIMS.items():
        curves[attention] = []
        for seed in range(1, bench.seeds + 1):
            path = bench.train(
                f"{attention}-{seed}",
                *SETTINGS,
                *files,
                f"model.attention={attention}",
                f"model.dim={dim}",
                f"seed={seed}",
            )
            curves[attention].append(accuracy_by_length(path, bench.say))
            sizes[attention] = parameters(path)
    found = findings(curves, sizes)
    _draw(curves, bench.out / found.pictures[0])
    return found


def _write_pairs(folder: Path) -> list[str]:
    """Write letters as source and as equal target into two files; return the overrides that name them."""
    generator = random.Random(0)  # the task is the same for all seeds of models

    def pair(length: int) -> str:
        text = " ".join(generator.choices(LETTERS, k=length))
        return json.dumps({"source": text, "target": text})

    train, validation = [], []
    for _ in range(NUM_TRAIN):
        train.append(pair(generator.randint(SHORTEST, LONGEST)))
    for length in range(SHORTEST, LONGEST + 1):
        for _ in range(NUM_PER_LENGTH):
            validation.append(pair(length))
    overrides = []
    for key, lines in (("path", train), ("validation_path", validation)):
        file = folder / f"pairs_{key}.jsonl"
        write_text(file, "\n".join(lines) + "\n")
        overrides.append(f"data.{key}={file}")
    return overrides


def accuracy_by_length(path: Path, say: Callable[[str], None]) -> Curve:
    """Return the share of letters that a run writes at their position, each after its own earlier letters."""
    import torch

    opened, data = open_measured(path, say)
    texts = data.rows[SPLIT].texts("source")
    with torch.no_grad():
        answers = opened.task.translate(opened.model, texts, opened.preprocessor)  # type: ignore[attr-defined]
    right: dict[int, int] = {}
    asked: dict[int, int] = {}
    for text, answer in zip(texts, answers, strict=True):
        true = text.split()
        right[len(true)] = right.get(len(true), 0) + letters_right(true, answer.split())
        asked[len(true)] = asked.get(len(true), 0) + len(true)
    return {length: right[length] / asked[length] for length in sorted(asked)}


def letters_right(true: list[str], answer: list[str]) -> int:
    """Count letters that are correct at their position. Missing letters count as errors; extra letters are ignored."""
    return sum(map(str.__eq__, true, answer))


def findings(curves: dict[str, list[Curve]], sizes: dict[str, int]) -> Findings:
    """Judge the claim from the curves of each seed.

    To forget is more than to be worse. The verdict compares how much accuracy each model loses from the shortest third
    of lengths to the longest.

    Args:
        curves: Accuracy by length for each kind of attention and each seed.
        sizes: Parameters for each kind of attention.
    """
    # The same in all curves, as all read the same sources.
    lengths = list(curves["none"][0])
    third = max(len(lengths) // 3, 1)
    rows: list[dict[str, str | float]] = []
    for length in lengths:
        row: dict[str, str | float] = {"length": str(length)}
        for attention, of_seeds in curves.items():
            of_length = seeds.spread([curve[length] for curve in of_seeds])
            row[f"{attention}_accuracy"] = of_length.mean
            row[f"{attention}_sd"] = "-" if of_length.deviation is None else of_length.deviation
        rows.append(row | {"chance": CHANCE})
    short: dict[str, list[float]] = {}
    long: dict[str, list[float]] = {}
    lost: dict[str, list[float]] = {}
    for attention, of_seeds in curves.items():
        short[attention] = [_mean(curve, lengths[:third]) for curve in of_seeds]
        long[attention] = [_mean(curve, lengths[-third:]) for curve in of_seeds]
        pairs = zip(short[attention], long[attention], strict=True)
        lost[attention] = [before - after for before, after in pairs]
    judged = seeds.paired(lost["none"], lost["additive"])
    # More weights would hold more letters, too.
    apart = abs(sizes["none"] / sizes["additive"] - 1)
    numbers: dict[str, float] = {"chance": CHANCE, "more_lost": judged.mean}
    for attention in curves:
        numbers[f"{attention}_short"] = seeds.spread(short[attention]).mean
        numbers[f"{attention}_long"] = seeds.spread(long[attention]).mean
        numbers[f"{attention}_parameters"] = float(sizes[attention])
    verdict = (
        f"share of letters that are right in short sources ({lengths[0]} to {lengths[third - 1]} letters) and in long "
        f"ones ({lengths[-third]} to {lengths[-1]}): from the last state alone {seeds.spread(short['none']).words()} "
        f"and {seeds.spread(long['none']).words()}, with attention {seeds.spread(short['additive']).words()} and "
        f"{seeds.spread(long['additive']).words()}, by a guess {CHANCE:.3f}. Lost from short to long, last state minus "
        f"attention: {judged.words()}. Parameters: {sizes['none']:,} and {sizes['additive']:,}"
    )
    holds = None if judged.sign is None else judged.sign > 0
    # A model that never learned the task cannot lose accuracy with length, so the other one would always lose more.
    if holds and numbers["additive_short"] < 2 * CHANCE:
        verdict += "; but the model with attention has not learned the task, which says nothing"
        holds = None
    if apart > MAX_APART:
        verdict += f"; but their parameters lie {apart:.0%} apart, so nothing follows"
        holds = None
    return Findings(rows, verdict, holds, ("last-state.png",), numbers)


def _mean(curve: Curve, lengths: list[int]) -> float:
    return sum(curve[length] for length in lengths) / len(lengths)


def _draw(curves: dict[str, list[Curve]], path: Path) -> None:
    """Draw accuracy by length: a thin line for each seed, a thick line for the mean."""
    figure = pictures.new_figure(7, 4.2)
    axes = figure.subplots()
    labels = {"none": "sees the last state alone", "additive": "attends to all states"}
    for color, (attention, of_seeds) in zip(pictures.COLORS, curves.items(), strict=False):
        lengths = list(of_seeds[0])
        means = []
        for length in lengths:
            means.append(seeds.spread([curve[length] for curve in of_seeds]).mean)
        for curve in of_seeds:
            axes.plot(lengths, list(curve.values()), color=color, linewidth=0.6)
        axes.plot(lengths, means, "o-", color=color, label=f"{labels[attention]} (model.attention={attention})")
    axes.axhline(CHANCE, linestyle=":", color=pictures.COLORS[-1], label="a guess")
    axes.set(xlabel="letters of the source", ylabel="share of letters that are right", ylim=(0, 1.03))
    axes.set_title("Letters said again: one state holds only so many")
    # Below the model that forgets nothing, right of the one that forgets.
    axes.legend(fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.92))
    pictures.save(figure, path)


DEMO = Demo(
    claim="A decoder that sees only the encoder's last state forgets long sources; attention does not.",
    seconds=60,
    run=run,
)
