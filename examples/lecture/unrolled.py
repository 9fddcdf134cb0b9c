"""An RNN over T steps is a feed-forward network of T layers with one set of weights; Transformers can share, too."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from seqtrain import Trained
from shared import Bench, Numbers, Result, dots, grid, main, new_figure, paired, spread

CLAIM = "An unrolled RNN is a deep network whose layers share their weights, and depth can share them in any model."
VARIANTS = {
    "2 layers of their own": ("model.num_layers=2",),
    "1 layer, twice": ("model.num_layers=2", "model.share_layers=true"),
    "1 layer, once": ("model.num_layers=1",),
}
# Recall takes two layers: one that puts each value beside its key, and one that looks for the key.
COMMON = (
    *(
        "task=tag",
        "data=recall",
        "data.shortest=32",
        "data.longest=32",
        "data.vocab=64",
        "data.batch_tokens=2048",
        "data.validation_size=200",
    ),
    *("model=gpt", "model.dim=48", "model.num_heads=2", "optimizer.lr=0.004", "task.dropout=0", "callbacks=none"),
    *("trainer.max_steps=400", "trainer.validate_every=400"),
)
CHANCE = 0.25  # of the four values of a row
STEPS, WIDTH = 50, 32


def run(bench: Bench) -> Result:
    """Unroll an RNN by hand and compare; train decoders whose depth shares its weights or does not."""
    apart, gradients_apart = unrolled()
    rows, numbers = grid(bench, VARIANTS, COMMON, measure)
    figure = new_figure(7, 2.2)
    axes = figure.subplots()
    dots(axes, numbers)
    axes.axvline(CHANCE, linestyle=":", color="black")
    axes.set(
        xlabel="values recalled (dotted: a guess)", xlim=(0, 1.03), title="Depth with and without weights of its own"
    )
    sizes = {str(row["variant"]): row["parameters"] for row in rows}
    return Result(rows, *judge(apart, gradients_apart, numbers, sizes), figure)


def unrolled() -> tuple[float, float]:
    """Compare an RNN with a network of STEPS layers that share one matrix, in float64.

    Returns:
        The largest difference of the last hidden state; and that of the gradient of the matrix: in the RNN, and summed
        over the layers of the network.
    """
    torch.manual_seed(0)
    rnn = nn.RNN(WIDTH, WIDTH, batch_first=True).double()
    into, again, bias, other_bias = (weight for _, weight in rnn.named_parameters())  # torch has two biases
    inputs = torch.randn(1, STEPS, WIDTH, dtype=torch.float64)
    last = rnn(inputs)[0][:, -1]
    last.sum().backward()
    copies: list[Tensor] = [again.detach().clone().requires_grad_() for _ in range(STEPS)]
    hidden = torch.zeros(1, WIDTH, dtype=torch.float64)
    for copy, x in zip(copies, inputs.unbind(1), strict=True):  # a layer for each step, with a matrix of its own
        hidden = torch.tanh(x @ into.T + hidden @ copy.T + bias + other_bias)
    hidden.sum().backward()
    summed = torch.stack([copy.grad for copy in copies if copy.grad is not None]).sum(0)
    assert again.grad is not None
    return (hidden - last).abs().max().item(), (summed - again.grad).abs().max().item()


def measure(run: Trained) -> float:
    """Return the share of values that are recalled."""
    return run.metrics["validation"]["accuracy"]


def judge(
    apart: float, gradients_apart: float, accuracy: Numbers, sizes: Mapping[str, str | float]
) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the unrolled RNN is the same function."""
    own, shared, one = VARIANTS
    more = paired(accuracy[shared], accuracy[own], comparisons=2)
    deeper = paired(accuracy[shared], accuracy[one], comparisons=2)
    told = ", ".join(f"{name} {spread(values)} with {sizes[name]} parameters" for name, values in accuracy.items())
    verdict = (
        f"an RNN over {STEPS} steps and {STEPS} layers of one matrix differ by at most {apart:.1g}, and the gradient "
        f"of the matrix by {gradients_apart:.1g} from the sum over the layers: rounding. Values recalled: {told}; "
        f"a guess: {CHANCE}. "
        f"Shared minus own: {more.words()}; shared minus one layer: {deeper.words()}"
    )
    return verdict, max(apart, gradients_apart) < 1e-10


if __name__ == "__main__":
    main("unrolled", CLAIM, run)
