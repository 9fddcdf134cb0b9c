"""Seconds of a token that is written, by the tokens before it: a carried state, a cache, and reading all again."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from seqtrain.config import check
from seqtrain.models.base import SequenceModel
from seqtrain.training.model_and_task import make_model
from shared import COLORS, Bench, Result, Row, fmean, main, new_figure

CLAIM = "An RNN writes each token in the same time; a Transformer needs longer the more tokens it has kept."
MODELS = {
    "LSTM, state": ("model=lstm", "model.dim=256"),
    "GPT, cache": ("model=gpt", "model.dim=256", "model.num_layers=2", "model.attention_window=4096"),
}
AGAIN = "GPT, all again"
BEFORE = (256, 512, 1024, 2048, 4096)  # tokens
VOCAB = 256
NUM_TIMED = 30  # tokens, of which the fastest counts: what else the machine does only adds


def run(bench: Bench) -> Result:
    """Time one token more behind 256 to 4,096 tokens. Seconds are of the machine; how they grow is of the model."""
    curves: dict[str, list[float]] = {}
    for name, words in MODELS.items():
        model = make_model(check.compose(list(words)).config, VOCAB).eval()  # untrained: time depends on no weight
        curves[name] = [fmean(step(model, length) for _ in range(bench.seeds)) for length in BEFORE]
        if name.startswith("GPT"):
            curves[AGAIN] = [fmean(again(model, length) for _ in range(bench.seeds)) for length in BEFORE]
    rows: list[Row] = [
        {"tokens_before": f"{length:,}"} | {name: 1e3 * curve[at] for name, curve in curves.items()}
        for at, length in enumerate(BEFORE)
    ]
    figure = new_figure(6.5, 4)
    axes = figure.subplots()
    for color, (name, curve) in zip(COLORS, curves.items(), strict=False):
        axes.loglog(BEFORE, [1e3 * seconds for seconds in curve], "o-", color=color, label=name)
    axes.set(xlabel="tokens before", ylabel="milliseconds of one token", title="Writing, step by step")
    axes.legend(fontsize=8)
    return Result(rows, *judge(curves), figure)


@torch.no_grad()
def step(model: SequenceModel, length: int) -> float:
    """Return the seconds of one token with the state of `length` tokens."""
    _, state = model(tokens(length))
    return fastest(lambda: model(tokens(1), state))


@torch.no_grad()
def again(model: SequenceModel, length: int) -> float:
    """Return the seconds of reading `length` tokens: what one more token costs where nothing was kept."""
    return fastest(lambda: model(tokens(length)), 3)


def tokens(length: int) -> Tensor:
    """Return one row of tokens."""
    return torch.arange(length).unsqueeze(0) % VOCAB


def fastest(call: Callable[[], object], times: int = NUM_TIMED) -> float:
    """Return the fewest seconds that a call takes, once it has been called."""
    call()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def judge(curves: dict[str, list[float]]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds."""
    slopes = {name: np.polyfit(np.log(BEFORE[2:]), np.log(curve[2:]), 1)[0] for name, curve in curves.items()}
    times = ", ".join(
        f"{name} {curve[-1] / curve[0]:.1f} ({1e3 * curve[0]:.2g} to {1e3 * curve[-1]:.2g} ms)"
        for name, curve in curves.items()
    )
    grows = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
    verdict = (
        f"a token behind {BEFORE[-1]:,} tokens takes so many times as long as one behind {BEFORE[0]}: {times}. "
        f"Exponents of the time in T from {BEFORE[2]:,} tokens on: {grows}"
    )
    return verdict, bool(slopes["LSTM, state"] < 0.2 < slopes["GPT, cache"] < slopes[AGAIN])


if __name__ == "__main__":
    main("writing", CLAIM, run)
