"""A peer: the DLinear of LTSF-Linear in plain PyTorch, one map for all channels, and the loop that trains it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers import turns

KERNEL = 25  # values in the moving average


class DLinear(nn.Module):
    """A map of the trend and a map of the rest, from the values read to those ahead."""

    def __init__(self, *, steps: int, horizon: int) -> None:
        super().__init__()
        self.trend, self.rest = nn.Linear(steps, horizon), nn.Linear(steps, horizon)

    def forward(self, values: Tensor) -> Tensor:
        series = values.transpose(1, 2)
        mean = F.avg_pool1d(F.pad(series, (KERNEL // 2, KERNEL // 2), mode="replicate"), KERNEL, stride=1)
        return (self.trend(mean) + self.rest(series - mean)).transpose(1, 2)


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    model = DLinear(**work.sizes)
    optimizer = turns.adamw(model)
    work.ready(model)
    for batch in work:
        with work.autocast():
            ahead = model(batch["tokens"])
        loss = F.mse_loss(ahead.float(), batch["targets"])
        turns.update(model, optimizer, loss)


if __name__ == "__main__":
    train(turns.from_command_line())
