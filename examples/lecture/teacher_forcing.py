"""Teacher forcing and free running: the error of a model by steps ahead, fed the truth and fed its own answers."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from seqtrain import Trained
from seqtrain.data.sources.seasonal import KEPT
from seqtrain.terminal import tell
from seqtrain.training.data import make_data, make_source
from shared import COLORS, Bench, Result, Row, fmean, main, new_figure, paired

CLAIM = "A model that learned with the truth before each step does worse, step by step, on its own answers."
SPLIT = "validation"
HORIZON = 24  # hours ahead
PROMPT, LENGTH, NUM_PROMPTS = 64, 24, 512  # bytes that are read, bytes that are written, and how many texts
SERIES = (
    *("task=forecast", f"task.horizon={HORIZON}", "data=seasonal", "data.size=8", "data.length=3000"),
    *("data.missing_share=0", "model=gru", "model.dim=32", "trainer.max_steps=400", "trainer.validate_every=400"),
)
TEXT = (
    *("task=next_token", "model=gru", "model.dim=128", "tokenizer=byte", "tbptt.k2=64"),
    *("trainer.max_steps=400", "trainer.validate_every=400"),
)

Curves = dict[str, list[float]]
"""By step ahead, from the first: how large the error is, or how much is right."""


def run(bench: Bench) -> Result:
    """Train forecasters and language models, and evaluate each in both ways."""
    series: list[Curves] = []
    text: list[Curves] = []
    for seed in range(1, bench.seeds + 1):
        recursive = bench.train(f"recursive-{seed}", *SERIES, "task.strategy=recursive", f"seed={seed}")
        direct = bench.train(f"direct-{seed}", *SERIES, "task.strategy=direct", f"seed={seed}")
        series.append(series_curves(recursive, direct))
        text.append(text_curves(bench.train(f"text-{seed}", *TEXT, f"seed={seed}")))
    mean, words = means(series), means(text)
    rows: list[Row] = []
    for step in range(HORIZON):
        errors = {f"mse_{name}": curve[step] for name, curve in mean.items()}
        rows.append({"ahead": str(step + 1)} | errors | {f"text_{name}": curve[step] for name, curve in words.items()})
    return Result(rows, *judge(series, text), draw(mean, words))


def read(run: Trained) -> Any:
    """Return a run's validation data, read as in its training."""
    return make_data(run.opened.config, (SPLIT,), tell, run.opened.preprocessor)


def series_curves(recursive: Trained, direct: Trained) -> Curves:
    """Return mean squared errors by step ahead, over all windows of validation, in squared units of the data.

    `best_forced` and `best_free` are the errors of a forecaster that knows how these series were made. The newest value
    tells it the noise. After h hours 0.8**h of that noise is left, and the rest is unpredictable.
    """
    data, steps = read(recursive), torch.arange(HORIZON)
    task: Any = recursive.task  # a Forecast, by SERIES, as the other
    other: Any = direct.task
    without_noise = recursive.opened.config.copy()
    without_noise.data.noise = 0.0  # the same seed then draws the same seasons and trends
    smooth: Any = make_source(without_noise)
    noise = torch.from_numpy(data.source.series.values[:, 0]) - torch.from_numpy(smooth.series.values[:, 0])
    names = ("forced", "free", "direct", "best_forced", "best_free")
    sums = {name: torch.zeros(HORIZON, dtype=torch.float64) for name in names}
    count = 0
    with torch.no_grad():
        for batch in data.eval_loader(SPLIT):
            found = {
                "free": task.params(recursive.model, batch, None)[0],
                "forced": task.teacher_forced(recursive.model, batch),
                "direct": other.params(direct.model, batch, None)[0],
            }
            # Errors of scaled values would depend on how each series was scaled.
            std = task.std[batch.series].double().unsqueeze(2)
            for name, params in found.items():
                scaled = task.distribution.median(params).double() - batch.targets.double()
                sums[name] += ((scaled * std) ** 2).sum((0, 1, 3))
            rows = batch.rows[:, None] + steps
            sums["best_free"] += ((noise[rows] - KEPT ** (steps + 1) * noise[batch.rows - 1][:, None]) ** 2).sum(0)
            sums["best_forced"] += ((noise[rows] - KEPT * noise[rows - 1]) ** 2).sum(0)
            count += len(batch.tokens)
    return {name: (errors / count).tolist() for name, errors in sums.items()}


def text_curves(run: Trained) -> Curves:
    """Return the shares of correct bytes, by the number of bytes written greedily since the prompt.

    `forced`: each byte follows the true ones. `free`: each byte follows those that the model wrote. `unbroken`: all
    bytes so far are correct. `chance`: the most frequent byte is always chosen.
    """
    model = run.model
    task: Any = run.task  # a NextToken, by TEXT
    tokens = torch.from_numpy(read(run).corpora[SPLIT].tokens[:].astype("int64"))
    starts = torch.linspace(0, len(tokens) - PROMPT - LENGTH, NUM_PROMPTS).long()
    texts = tokens[starts[:, None] + torch.arange(PROMPT + LENGTH)]
    true = texts[:, PROMPT:]
    with torch.no_grad():
        forced = task.logits(model, model(texts[:, :-1], None)[0])[:, PROMPT - 1 :].argmax(-1)
        # The same prompt again, this time for the state that it leaves.
        hidden, state = model(texts[:, :PROMPT], None)
        written = []
        for _ in range(LENGTH):
            written.append(task.logits(model, hidden[:, -1:]).argmax(-1))
            hidden, state = model(written[-1], state)
    right = torch.cat(written, 1) == true
    shares = {"forced": forced == true, "free": right, "unbroken": right.cumprod(1)}
    # The most frequent byte of this text makes the best constant guess.
    chance = (tokens == tokens.mode().values).double().mean().item()
    return {name: share.double().mean(0).tolist() for name, share in shares.items()} | {"chance": [chance] * LENGTH}


def judge(series: list[Curves], text: list[Curves]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds, from the curves of each seed.

    Part of the distance between the two ways is unavoidable: with the truth a model knows more. The verdict therefore
    compares how far each way lies above its best possible error.
    """
    mse = {name: [fmean(curves[name]) for curves in series] for name in series[0]}

    def lost(name: str, best: str) -> list[float]:
        return [error - least for error, least in zip(mse[name], mse[best], strict=True)]

    judged = paired(lost("free", "best_free"), lost("forced", "best_forced"))
    direct = paired(lost("free", "best_free"), lost("direct", "best_free"))
    mean = {name: fmean(values) for name, values in mse.items()}
    last = {name: curve[-1] for name, curve in means(text).items()}
    verdict = (
        f"mean squared error over {HORIZON} hours: {mean['forced']:.3f} fed the truth, {mean['free']:.3f} fed its own "
        f"answers. The best that is possible: {mean['best_forced']:.3f} and {mean['best_free']:.3f}. So free running "
        f"adds {judged.words()} to the model's distance from the best. Its error minus that of a model which says all "
        f"hours at once: {direct.words()}. Text, byte {LENGTH} after the prompt: right in {last['forced']:.0%} fed the "
        f"truth, in {last['free']:.0%} fed its own bytes, in {last['chance']:.0%} for who always says the commonest "
        f"byte; {last['unbroken']:.1%} of the texts have no wrong byte until there"
    )
    return verdict, None if judged.sign is None else judged.sign > 0


def means(curves: list[Curves]) -> Curves:
    """Return each curve's mean over seeds."""
    return {name: [fmean(steps) for steps in zip(*(one[name] for one in curves), strict=True)] for name in curves[0]}


def draw(series: Curves, text: Curves) -> Figure:
    """Draw both sets of curves by steps ahead."""
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    for axes, values, color, style, label in (
        (left, series["forced"], 0, "-", "fed the truth"),
        (left, series["best_forced"], 0, "--", "the best possible, fed the truth"),
        (left, series["free"], 1, "-", "fed its own answers"),
        (left, series["direct"], 2, "-", "another model, all hours at once"),
        (left, series["best_free"], 1, "--", "the best possible, not told the truth"),
        (right, text["forced"], 0, "-", "fed the truth"),
        (right, text["free"], 1, "-", "fed its own answers"),
        (right, text["unbroken"], 3, "-", "fed its own, and no byte wrong so far"),
        (right, text["chance"], 6, ":", "always the commonest byte"),
    ):
        axes.plot(range(1, len(values) + 1), values, style, color=COLORS[color], label=label)
        axes.legend(fontsize=8)
    left.set(xlabel="hours ahead", ylabel="mean squared error (units of the data, squared)", ylim=(0, None))
    left.set_title("Series: the error by hours ahead (lower is better)")
    right.set(xlabel="bytes written since the prompt", ylabel="share of bytes that are right", ylim=(0, 1))
    right.set_title("Text: what is right by bytes ahead (higher is better)")
    return figure


if __name__ == "__main__":
    main("teacher-forcing", CLAIM, run)
