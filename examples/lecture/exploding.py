"""Gradients of a ReLU network with large recurrent weights grow with distance, and clipping bounds the update."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from seqtrain.analysis.gradient_decay import decay_of, mean_norms
from seqtrain.analysis.gradient_reach import measure_stream
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import Stream
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.models.recurrent import RNN
from seqtrain.tasks.next_token import NextToken
from shared import COLORS, Bench, Result, Row, main, new_figure

CLAIM = "With large recurrent weights gradients explode over distance; clipping keeps the update of a bounded size."
RADII = (0.5, 1.0, 1.5, 2.0)  # spectral radius of the recurrent weights; 1 neither grows nor fades in a linear network
DIM, VOCAB, LANES, LENGTH = 64, 16, 8, 48
FARTHEST = 24  # tokens
LIMIT = 1.0  # to which clipping brings the norm of the gradient
THEORY = "theory_radius/sqrt(2)"  # the column of what each step back should multiply by
LEARNING_RATE = 0.5  # of plain gradient descent: for a norm of LIMIT a small step


def run(bench: Bench) -> Result:
    """Measure the decay of the gradient at each radius, and the loss after one step, clipped and unclipped."""
    tokens = np.random.default_rng(bench.seeds).integers(0, VOCAB, LANES * LENGTH)
    documents = np.array([0, len(tokens)])
    cut = TBPTT(k1=LENGTH, k2=LENGTH, carry=True, reset="never")
    plan = StreamPlan(documents=documents, lanes=LANES, tbptt=cut, seed=0, shuffle=False)
    stream = Stream(tokens, documents, VOCAB)
    batch = stream.batch(plan.chunk(0, 0), slice(0, LANES))
    figure = new_figure(7, 4)
    axes = figure.subplots()
    rows: list[Row] = []
    for color, radius in zip(COLORS, RADII, strict=False):
        measured = measure_stream(*network(radius, bench.seeds), stream, plan, farthest=FARTHEST, samples=16)
        norms = mean_norms(measured)[1][0]
        axes.semilogy(measured.distances, norms, "o-", color=color, label=f"radius {radius:g}")
        theory = norms[1] * (radius / math.sqrt(2)) ** (measured.distances - 1.0)
        axes.semilogy(measured.distances, theory, "--", color=color)
        # About half of the units are active, so each step passes on half of the square (He et al. 2015).
        row: Row = {"spectral_radius": radius, "rate": decay_of(measured).rate or math.nan}
        rows.append(row | {THEORY: radius / math.sqrt(2)} | one_step(radius, bench.seeds, batch))
    axes.set(
        xlabel="distance j in tokens",
        ylabel="norm of d loss_t / d x_(t-j)",
        title="Gradients of a ReLU network by the size of its recurrent weights",
    )
    # One entry for the theory of all four; each stands in the colour of its measurement.
    axes.plot([], [], "--", color="0.4", label="theory: times radius / sqrt(2) a token")
    axes.legend()
    return Result(rows, *judge(rows[0], rows[-1]), figure)


def network(radius: float, seed: int) -> tuple[RNN, NextToken]:
    """Return a ReLU network whose recurrent weights are scaled to a spectral radius, and its task."""
    torch.manual_seed(seed)
    embed = TokenEmbedding(vocab_size=VOCAB, dim=DIM)
    model = RNN(embed=embed, dim=DIM, num_layers=1, dropout=0.0, bidirectional=False, activation="relu")
    weight: Any = model.layer.weight_hh_l0
    with torch.no_grad():
        weight.mul_(radius / torch.linalg.eigvals(weight).abs().max())
    return model, NextToken(dim=DIM, vocab_size=VOCAB, tied=False)


def one_step(radius: float, seed: int, batch: Any) -> Row:
    """Return the norm of the gradient, and the loss before and after a step of descent, clipped and unclipped."""
    found: Row = {}
    for name, limit in (("unclipped", math.inf), ("clipped", LIMIT)):
        model, task = network(radius, seed)
        weights = [*model.parameters(), *task.parameters()]
        loss = task.evaluate(model, batch, None)[0]["loss"][0] / batch.count
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, limit)
        torch.optim.SGD(weights, lr=LEARNING_RATE).step()
        with torch.no_grad():
            after = (task.evaluate(model, batch, None)[0]["loss"][0] / batch.count).item()
        # JSON has no other way to express what is not finite.
        after = after if math.isfinite(after) else "no number"
        found |= {"gradient_norm": norm.item(), "loss": loss.item(), f"loss_after_{name}": after}
    return found


def judge(first: Row, last: Row) -> tuple[str, bool]:
    """Return a verdict in words from the smallest and the largest radius, and whether the claim holds."""
    unclipped, clipped = last["loss_after_unclipped"], last["loss_after_clipped"]
    rises = isinstance(unclipped, str) or unclipped > float(last["loss"])
    holds = float(first["rate"]) < 1 < float(last["rate"]) and rises and not isinstance(clipped, str)
    verdict = (
        f"with spectral radius {first['spectral_radius']:g} each step back multiplies the gradient by "
        f"{first['rate']:.2f}, with {last['spectral_radius']:g} by {last['rate']:.2f} (theory: "
        f"{first[THEORY]:.2f} and {last[THEORY]:.2f}). With {last['spectral_radius']:g} the norm of the whole "
        f"gradient is {shown(last['gradient_norm'])}, and one step of descent takes the loss from "
        f"{shown(last['loss'])} to {shown(unclipped)}. The same step with the gradient clipped to norm {LIMIT:g} "
        f"takes it to {shown(clipped)}"
    )
    return verdict, holds


def shown(value: str | float) -> str:
    """Format a number in digits rather than as a power of ten, as far as they can be read."""
    if isinstance(value, str):
        return f"{value}: it overflows"
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.3g}"


if __name__ == "__main__":
    main("exploding", CLAIM, run)
