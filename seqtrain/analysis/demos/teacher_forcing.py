"""Teacher forcing and free running: the error of a model by steps ahead, fed the truth and fed its own answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.analysis import pictures, seeds
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.analysis.measured_runs import SPLIT, open_measured
from seqtrain.data.sources.seasonal import KEPT

if TYPE_CHECKING:
    from torch import Tensor

HORIZON = 24  # hours ahead
PROMPT, LENGTH, NUM_PROMPTS = 64, 24, 512  # bytes that are read, bytes that are written, and how many texts
SERIES = (
    "task=forecast",
    f"task.horizon={HORIZON}",
    "data=seasonal",
    "data.size=8",
    "data.length=3000",
    "data.missing_share=0",
    "model=gru",
    "model.dim=32",
    "trainer.max_steps=400",
    "trainer.validate_every=400",
)
TEXT = (
    "task=next_token",
    "model=gru",
    "model.dim=128",
    "tokenizer=byte",
    "tbptt.k2=64",
    "trainer.max_steps=400",
    "trainer.validate_every=400",
)

Curves = dict[str, list[float]]
"""By step ahead, from the first: how large the error is, or how much is right."""


def run(bench: Bench) -> Findings:
    """Train forecasters and language models, and evaluate each in both ways."""
    series: list[Curves] = []
    text: list[Curves] = []
    for seed in range(1, bench.seeds + 1):
        recursive = bench.train(f"recursive-{seed}", *SERIES, "task.strategy=recursive", f"seed={seed}")
        direct = bench.train(f"direct-{seed}", *SERIES, "task.strategy=direct", f"seed={seed}")
        series.append(series_curves(recursive, direct, bench.say))
        text.append(text_curves(bench.train(f"text-{seed}", *TEXT, f"seed={seed}"), bench.say))
    found = findings(series, text)
    _draw(_means(series), _means(text), bench.out / found.pictures[0])
    return found


# -- series ------------------------------------------------------------------------------------------------------


def series_curves(recursive: Path, direct: Path, say: Callable[[str], None]) -> Curves:
    """Return mean squared errors by step ahead, over all windows of validation, in squared units of the data.

    `best_forced` and `best_free` are the errors of a forecaster that knows how these series were made. The newest value
    tells it the noise. After h hours 0.8**h of that noise is left, and the rest is unpredictable.
    """
    free, forced, best_free, best_forced = _errors(recursive, say, teacher_forced=True)
    at_once, *_ = _errors(direct, say)
    return {
        "forced": forced,
        "free": free,
        "direct": at_once,
        "best_forced": best_forced,
        "best_free": best_free,
    }


def _errors(path: Path, say: Callable[[str], None], *, teacher_forced: bool = False) -> list[list[float]]:
    """Return errors by step ahead: forecasts, teacher-forced steps (0 unless asked for), and the best of both."""
    import torch

    from seqtrain.training.data import make_source

    opened, data = open_measured(path, say)
    model = opened.model
    task: Any = opened.task  # a Forecast, by SERIES
    source: Any = data.source
    without_noise = opened.config.copy()
    without_noise.data.noise = 0.0  # the same seed then draws the same seasons and trends
    smooth: Any = make_source(without_noise)
    signal = torch.from_numpy(smooth.series.values[:, 0])
    noise = torch.from_numpy(source.series.values[:, 0]) - signal
    # A row for each kind of error, a column for each step ahead.
    sums, count = torch.zeros(4, HORIZON, dtype=torch.float64), 0
    with torch.no_grad():
        batches: Any = data.eval_loader(SPLIT)
        for batch in batches:
            # Errors of scaled values would depend on how each series was scaled.
            std = task.std[batch.series].double()
            params = [task.params(model, batch, None)[0]]
            if teacher_forced:
                params.append(task.teacher_forced(model, batch))
            for row, found in enumerate(params):
                scaled = task.distribution.median(found).double() - batch.targets.double()
                sums[row] += ((scaled * std.unsqueeze(2)) ** 2).sum((0, 1, 3))
            for row, best in enumerate(_best(batch.rows, noise), start=2):
                sums[row] += best
            count += len(batch.tokens)
    return (sums / count).tolist()


def _best(first: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best squared errors, free and forced, summed over windows: season, trend and noise process are known.

    Args:
        first: Row of each window that is predicted first.
        noise: Noise of each row.
    """
    import torch

    steps = torch.arange(HORIZON)
    rows = first[:, None] + steps
    free = noise[rows] - KEPT ** (steps + 1) * noise[first - 1][:, None]
    forced = noise[rows] - KEPT * noise[rows - 1]
    return (free**2).sum(0), (forced**2).sum(0)


# -- text --------------------------------------------------------------------------------------------------------


def text_curves(path: Path, say: Callable[[str], None]) -> Curves:
    """Return the shares of correct bytes, by the number of bytes written greedily since the prompt.

    `forced`: each byte follows the true ones. `free`: each byte follows those that the model wrote. `unbroken`: all
    bytes so far are correct. `chance`: the most frequent byte is always chosen.
    """
    import torch

    opened, data = open_measured(path, say)
    model = opened.model
    task: Any = opened.task  # a NextToken, by TEXT
    tokens = torch.from_numpy(data.corpora[SPLIT].tokens[:].astype("int64"))
    starts = torch.linspace(0, len(tokens) - PROMPT - LENGTH, NUM_PROMPTS).long()
    texts = tokens[starts[:, None] + torch.arange(PROMPT + LENGTH)]
    true = texts[:, PROMPT:]
    with torch.no_grad():
        hidden, _ = model(texts[:, :-1], None)
        forced = task.logits(model, hidden)[:, PROMPT - 1 :].argmax(-1)
        # The same prompt again, this time for the state that it leaves.
        hidden, state = model(texts[:, :PROMPT], None)
        written = []
        for _ in range(LENGTH):
            written.append(task.logits(model, hidden[:, -1:]).argmax(-1))
            hidden, state = model(written[-1], state)
        free = torch.cat(written, 1)
    # The most frequent byte of this text makes the best constant guess.
    commonest = tokens.mode().values
    right = free == true
    return {
        "forced": (forced == true).double().mean(0).tolist(),
        "free": right.double().mean(0).tolist(),
        "unbroken": right.cumprod(1).double().mean(0).tolist(),
        "chance": [(tokens == commonest).double().mean().item()] * LENGTH,
    }


# -- what it says ------------------------------------------------------------------------------------------------


def findings(series: list[Curves], text: list[Curves]) -> Findings:
    """Judge the claim from the curves of each seed.

    Part of the distance between the two ways is unavoidable: with the truth a model knows more. The verdict therefore
    compares how far each way lies above its best possible error.

    Args:
        series: Curves of each seed, from `series_curves`.
        text: Curves of each seed, from `text_curves`.
    """
    mean, words = _means(series), _means(text)
    rows: list[dict[str, str | float]] = []
    for step in range(HORIZON):
        row: dict[str, str | float] = {"ahead": str(step + 1)}
        for name, curve in mean.items():
            row[f"mse_{name}"] = curve[step]
        for name, curve in words.items():
            row[f"text_{name}"] = curve[step]
        rows.append(row)
    lost_forced, lost_free, lost_direct = [], [], []
    for curves in series:
        lost_forced.append(_average(curves["forced"]) - _average(curves["best_forced"]))
        lost_free.append(_average(curves["free"]) - _average(curves["best_free"]))
        lost_direct.append(_average(curves["direct"]) - _average(curves["best_free"]))
    judged = seeds.paired(lost_free, lost_forced)
    direct = seeds.paired(lost_free, lost_direct)
    numbers = {
        "mse_forced": _average(mean["forced"]),
        "mse_free": _average(mean["free"]),
        "mse_direct": _average(mean["direct"]),
        "mse_best_forced": _average(mean["best_forced"]),
        "mse_best_free": _average(mean["best_free"]),
        "lost_forced": seeds.spread(lost_forced).mean,
        "lost_free": seeds.spread(lost_free).mean,
        "lost_direct": seeds.spread(lost_direct).mean,
        "text_forced_last": words["forced"][-1],
        "text_free_last": words["free"][-1],
        "text_unbroken_last": words["unbroken"][-1],
        "text_chance": words["chance"][-1],
    }
    verdict = (
        f"mean squared error over {HORIZON} hours: {numbers['mse_forced']:.3f} fed the truth, "
        f"{numbers['mse_free']:.3f} fed its own answers. The best that is possible: "
        f"{numbers['mse_best_forced']:.3f} and {numbers['mse_best_free']:.3f}. So free running adds {judged.words()} "
        f"to the model's distance from the best. Its error minus that of a model which says all hours at once: "
        f"{direct.words()}. Text, byte {LENGTH} after the prompt: right in "
        f"{numbers['text_forced_last']:.0%} fed the truth, in {numbers['text_free_last']:.0%} fed its own bytes, in "
        f"{numbers['text_chance']:.0%} for who always says the commonest byte; "
        f"{numbers['text_unbroken_last']:.1%} of the texts have no wrong byte until there"
    )
    holds = None if judged.sign is None else judged.sign > 0
    return Findings(rows, verdict, holds, ("teacher-forcing.png",), numbers)


def _average(values: list[float]) -> float:
    return sum(values) / len(values)


def _means(curves: list[Curves]) -> Curves:
    """Return each curve's mean over seeds."""
    means = {}
    for name in curves[0]:
        of_seeds = [one[name] for one in curves]
        means[name] = list(map(_average, map(list, zip(*of_seeds, strict=True))))
    return means


def _draw(series: Curves, text: Curves, path: Path) -> None:
    """Draw both sets of curves by steps ahead."""
    figure = pictures.new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    lines = (
        (left, series, "forced", 0, "-", "fed the truth"),
        (left, series, "best_forced", 0, "--", "the best possible, fed the truth"),
        (left, series, "free", 1, "-", "fed its own answers"),
        (left, series, "direct", 2, "-", "another model, all hours at once"),
        (left, series, "best_free", 1, "--", "the best possible, not told the truth"),
        (right, text, "forced", 0, "-", "fed the truth"),
        (right, text, "free", 1, "-", "fed its own answers"),
        (right, text, "unbroken", 3, "-", "fed its own, and no byte wrong so far"),
        (right, text, "chance", 6, ":", "always the commonest byte"),
    )
    for axes, curves, name, color, style, label in lines:
        steps = range(1, len(curves[name]) + 1)
        axes.plot(steps, curves[name], style, color=pictures.COLORS[color], label=label)
    left.set(xlabel="hours ahead", ylabel="mean squared error (units of the data, squared)", ylim=(0, None))
    left.set_title("Series: the error by hours ahead (lower is better)")
    right.set(xlabel="bytes written since the prompt", ylabel="share of bytes that are right", ylim=(0, 1))
    right.set_title("Text: what is right by bytes ahead (higher is better)")
    for axes in (left, right):
        axes.legend(fontsize=8)
    pictures.save(figure, path)


DEMO = Demo(
    claim="A model that learned with the truth before each step does worse, step by step, on its own answers.",
    seconds=60,
    run=run,
)
