"""An RNN over T steps is a feed-forward network of T layers with one set of weights; Transformers can share, too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqtrain import Trained
from shared import Bench, Numbers, Result, dots, grid, main, new_figure, paired, spread

CLAIM = "An unrolled RNN is a deep network whose layers share their weights, and depth can share them in any model."
LAYERS = 4
VARIANTS = {
    "4 layers of their own": (f"model.num_layers={LAYERS}", "model.dim=48"),
    "1 layer, 4 times": (f"model.num_layers={LAYERS}", "model.dim=48", "model.share_layers=true"),
    "1 layer": ("model.num_layers=1", "model.dim=48"),
}
COMMON = (
    *("task=tag", "data=pronoun", "model=bert", "model.num_heads=2", "model.dropout=0", "task.dropout=0"),
    *("trainer.max_steps=120", "trainer.validate_every=120", "callbacks=none"),
)
STEPS, WIDTH = 50, 32


def run(bench: Bench) -> Result:
    """Unroll an RNN by hand and compare; train Transformers whose depth shares its weights or does not."""
    apart, gradients_apart = unrolled()
    rows, numbers = grid(bench, VARIANTS, COMMON, measure)
    figure = new_figure(7, 2.2)
    axes = figure.subplots()
    dots(axes, numbers)
    axes.set(xlabel="loss in nats: lower is better", title="Depth with and without weights of its own")
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
    inputs = torch.randn(1, STEPS, WIDTH, dtype=torch.float64)
    last = rnn(inputs)[0][:, -1]
    last.sum().backward()
    copies: list[Tensor] = [rnn.weight_hh_l0.detach().clone().requires_grad_() for _ in range(STEPS)]
    hidden = torch.zeros(1, WIDTH, dtype=torch.float64)
    for copy, x in zip(copies, inputs.unbind(1), strict=True):  # a layer for each step, with a matrix of its own
        hidden = torch.tanh(x @ rnn.weight_ih_l0.T + hidden @ copy.T + rnn.bias_ih_l0 + rnn.bias_hh_l0)
    hidden.sum().backward()
    summed = sum(copy.grad for copy in copies if copy.grad is not None)
    assert rnn.weight_hh_l0.grad is not None
    return (hidden - last).abs().max().item(), (summed - rnn.weight_hh_l0.grad).abs().max().item()


def measure(run: Trained) -> float:
    """Return the loss of validation."""
    return run.metrics["validation"]["loss"]


def judge(apart: float, gradients_apart: float, loss: Numbers, sizes: dict[str, object]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the unrolled RNN is the same function."""
    own, shared, one = VARIANTS
    more = paired(loss[shared], loss[own], comparisons=2)
    deeper = paired(loss[shared], loss[one], comparisons=2)
    told = ", ".join(f"{name} {spread(values)} with {sizes[name]} parameters" for name, values in loss.items())
    verdict = (
        f"an RNN over {STEPS} steps and {STEPS} layers of one matrix differ by at most {apart:.1g}, and the gradient of "
        f"the matrix by {gradients_apart:.1g} from the sum over the layers: rounding. Loss in nats: {told}. "
        f"Shared minus own: {more.words()}; shared minus one layer: {deeper.words()}"
    )
    return verdict, max(apart, gradients_apart) < 1e-10


if __name__ == "__main__":
    main("unrolled", CLAIM, run)
