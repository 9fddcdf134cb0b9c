"""Gradients of a ReLU network with large recurrent weights grow with distance, and clipping bounds the update."""

from __future__ import annotations

import math
from typing import Any

from seqtrain.analysis import pictures
from seqtrain.analysis.demo import Bench, Demo, Findings

RADII = (0.5, 1.0, 1.5, 2.0)  # spectral radius of the recurrent weights; 1 neither grows nor fades in a linear network
DIM, VOCAB, LANES, LENGTH = 64, 16, 8, 48
FARTHEST = 24  # tokens
LIMIT = 1.0  # to which clipping brings the norm of the gradient
THEORY = "theory_radius/sqrt(2)"  # the column of what each step back should multiply by
LEARNING_RATE = 0.5  # of plain gradient descent: for a norm of LIMIT a small step


def run(bench: Bench) -> Findings:
    """Measure the decay of the gradient at each radius, and the loss after one step, clipped and unclipped."""
    import numpy as np

    from seqtrain.analysis.gradient_decay import decay_of, mean_norms
    from seqtrain.analysis.gradient_reach import measure_stream
    from seqtrain.data.batching.plan import TBPTT, StreamPlan
    from seqtrain.data.batching.stream import Stream

    tokens = np.random.default_rng(bench.seeds).integers(0, VOCAB, LANES * LENGTH)
    documents = np.array([0, len(tokens)])
    cut = TBPTT(k1=LENGTH, k2=LENGTH, carry=True, reset="never")
    plan = StreamPlan(documents=documents, lanes=LANES, tbptt=cut, seed=0, shuffle=False)
    stream = Stream(tokens, documents, VOCAB)
    figure = pictures.new_figure(7, 4)
    axes = figure.subplots()
    rows: list[dict[str, str | float]] = []
    for number, radius in enumerate(RADII):
        model, task = _network(radius, bench.seeds)
        measured = measure_stream(model, task, stream, plan, farthest=FARTHEST, samples=16)
        decay = decay_of(measured)
        norms = mean_norms(measured)[1][0]
        axes.semilogy(measured.distances, norms, "o-", color=pictures.COLORS[number], label=f"radius {radius:g}")
        theory = norms[1] * (radius / math.sqrt(2)) ** (measured.distances - 1.0)
        axes.semilogy(measured.distances, theory, "--", color=pictures.COLORS[number])
        rate = math.nan if decay.rate is None else decay.rate
        # About half of the units are active, so each step passes on half of the square (He et al. 2015).
        row: dict[str, str | float] = {
            "spectral_radius": radius,
            "rate": rate,
            THEORY: radius / math.sqrt(2),
        }
        rows.append(row | _one_step(radius, bench.seeds, stream.batch(plan.chunk(0, 0), slice(0, LANES))))
    axes.set(
        xlabel="distance j in tokens",
        ylabel="norm of d loss_t / d x_(t-j)",
        title="Gradients of a ReLU network by the size of its recurrent weights",
    )
    # One entry for the theory of all four; each stands in the colour of its measurement.
    axes.plot([], [], "--", color="0.4", label="theory: times radius / sqrt(2) a token")
    axes.legend()
    pictures.save(figure, bench.out / "exploding.png")
    return _findings(rows)


def _network(radius: float, seed: int) -> Any:
    """Return a ReLU network whose recurrent weights are scaled to a spectral radius, and its task."""
    import torch
    from omegaconf import OmegaConf

    from seqtrain.config.instantiate import make
    from seqtrain.models.layers.front_ends import TokenEmbedding

    torch.manual_seed(seed)
    embed = TokenEmbedding(vocab_size=VOCAB, dim=DIM)
    options = {"dim": DIM, "num_layers": 1, "dropout": 0.0, "bidirectional": False, "activation": "relu"}
    config = OmegaConf.create(
        {
            "model": {"_target_": "seqtrain.models.recurrent.RNN", **options},
            "task": {"_target_": "seqtrain.tasks.next_token.NextToken", "tied": False},
        }
    )
    model = make(config.model, embed=embed)
    weight = model.layer.weight_hh_l0
    with torch.no_grad():
        weight.mul_(radius / torch.linalg.eigvals(weight).abs().max())
    return model, make(config.task, dim=DIM, vocab_size=VOCAB)


def _one_step(radius: float, seed: int, batch: Any) -> dict[str, str | float]:
    """Return the norm of the gradient, and the loss before and after a step of descent, clipped and unclipped."""
    import torch

    from seqtrain.training.carried_state import read_batch

    found: dict[str, str | float] = {}
    for name, limit in (("unclipped", math.inf), ("clipped", LIMIT)):
        model, task = _network(radius, seed)
        weights = [*model.parameters(), *task.parameters()]
        loss = read_batch(model, task, batch, None)[0]["loss"][0] / batch.count
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, limit)
        with torch.no_grad():
            for weight in weights:
                if weight.grad is not None:
                    weight -= LEARNING_RATE * weight.grad
            after = read_batch(model, task, batch, None)[0]["loss"][0] / batch.count
        found |= {"gradient_norm": norm.item(), "loss": loss.item(), f"loss_after_{name}": _number(after.item())}
    return found


def _number(value: float) -> str | float:
    """Return the number, or words if it is not finite: JSON has no other way to express that."""
    return value if math.isfinite(value) else "no number"


def _shown(value: str | float) -> str:
    if isinstance(value, str):
        return f"{value}: it overflows"
    # Digits rather than a power of ten, as far as they can be read.
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.3g}"


def _findings(rows: list[dict[str, str | float]]) -> Findings:
    """Judge the claim from the table."""
    first, last = rows[0], rows[-1]
    fades, grows = float(first["rate"]) < 1, float(last["rate"]) > 1
    unclipped, clipped = last["loss_after_unclipped"], last["loss_after_clipped"]
    rises = isinstance(unclipped, str) or unclipped > float(last["loss"])
    holds = fades and grows and rises and not isinstance(clipped, str)
    verdict = (
        f"with spectral radius {first['spectral_radius']:g} each step back multiplies the gradient by "
        f"{first['rate']:.2f}, with {last['spectral_radius']:g} by {last['rate']:.2f} (theory: "
        f"{first[THEORY]:.2f} and {last[THEORY]:.2f}). With {last['spectral_radius']:g} the norm of the whole "
        f"gradient is {_shown(last['gradient_norm'])}, and one step of descent takes the loss from "
        f"{_shown(last['loss'])} to {_shown(unclipped)}. The same step with the gradient clipped to norm {LIMIT:g} "
        f"takes it to {_shown(clipped)}"
    )
    numbers = {"rate_at_largest_radius": float(last["rate"]), "norm_at_largest_radius": float(last["gradient_norm"])}
    for name in ("loss_after_unclipped", "loss_after_clipped"):
        value = last[name]
        if not isinstance(value, str):
            numbers[name] = value
    return Findings(rows, verdict, holds, ("exploding.png",), numbers)


DEMO = Demo(
    claim="With large recurrent weights gradients explode over distance; clipping keeps the update of a bounded size.",
    seconds=10,
    run=run,
)
