"""DLinear (Zeng et al. 2023, arXiv 2205.13504): a linear map of the trend of the last values, and one of the rest."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.front_ends import filtered_last
from seqtrain.models.layers.lengths import filtered


class DLinear(SequenceModel):
    """A linear model of the trend and the remainder of each channel's last `window` values.

    The trend is a moving average of `kernel_size` values inside the window; the first and last values are repeated
    beyond its ends. Each of the `dim` channels from `embed` has weights for the trend and for the remainder.

    The decomposition is linear too, so the model can represent the same functions as `AR` with the same window (Toner
    and Darlow 2024); only the training differs. It has twice as many parameters as AR for the same functions.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, window: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={kernel_size} must be odd: the moving average is symmetric")
        self.embed = embed
        self.dim = dim
        self.window = window
        self.num_folded = 2
        self.kernel_size = kernel_size
        self.dropout = nn.Dropout(dropout)
        # As published, both maps start as the mean over the window; the front end makes the units differ.
        self.trend = nn.Parameter(torch.full((window, dim), 1 / window))
        self.remainder = nn.Parameter(torch.full((window, dim), 1 / window))

    def initial(self, batch: int) -> State:
        return {"inputs": self.trend.new_zeros(batch, self.window - 1, self.dim)}

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return maps of the last `window` inputs; the state holds the last `window` - 1 inputs."""
        if state is None:
            state = self.initial(len(tokens))
        hidden, inputs = filtered(self.dropout(self.embed(tokens)), state["inputs"], self._filters(), lengths)
        return hidden, {"inputs": inputs}

    def sequential_steps(self, length: int) -> int:
        return 1

    def longest_path(self, length: int) -> int | None:
        return 1 if length <= self.window else None

    def last(self, tokens: Shaped[Tensor, "B T *F"]) -> Float[Tensor, "B 1 D"]:
        return filtered_last(self.embed, self.dropout, tokens, self._filters())

    def _filters(self) -> Float[Tensor, "K D"]:
        """Combine both maps into one filter of x: trend^T A x + remainder^T (x - A x), with A the moving average."""
        return self.remainder + of_the_average(self.trend - self.remainder, self.kernel_size)


def of_the_average(weights: Float[Tensor, "K D"], kernel_size: int) -> Float[Tensor, "K D"]:
    """Return window weights that equal applying `weights` to the window's moving average (A^T times `weights`)."""
    half = kernel_size // 2
    # The share of each value in the averages around it, including averages beyond both ends of the window.
    shares = F.avg_pool1d(F.pad(weights.t(), (2 * half, 2 * half)), kernel_size, stride=1)
    # The paper pads with the end values themselves; zeros would pull the trend down at both ends.
    first = shares[:, : half + 1].sum(1, keepdim=True)
    last = shares[:, -half - 1 :].sum(1, keepdim=True)
    # The first and the last value are repeated beyond the ends, so all shares there are theirs.
    return torch.cat([first, shares[:, half + 1 : -half - 1], last], 1).t()
