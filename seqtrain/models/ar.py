"""Linear autoregression as a causal model: the next value is a weighted sum of the last ones."""

from __future__ import annotations

import math
from typing import Literal, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.front_ends import ValueProjection, filtered_last
from seqtrain.models.layers.lengths import filtered

Fit = Literal["trained", "least_squares"]


class AR(SequenceModel):
    """Each of the `dim` channels from `embed` is filtered by its own weights over the last `window` inputs.

    With a linear front end and a linear head the whole model is linear. For series whose channels are read
    independently (F = 1), it can represent every AR(window) with horizon H as soon as dim is at least min(window, H). A
    larger dim adds nothing: the model trains two factors of one matrix, which have more parameters than the matrix. If
    F channels are read together, all share these filters, each unit reads one mixture of the channels, and the learned
    map has at most rank dim. For tokens the model filters embeddings.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, window: int, dropout: float, fit: Fit = "trained") -> None:
        """Build the model. `fit=least_squares`: weights start from the closed form, for a task that can compute it."""
        super().__init__()
        self.embed = embed
        self.dim = dim
        self.window = window
        self.linear_order = window if fit == "least_squares" else None
        self.dropout = nn.Dropout(dropout)
        # No bias: the head's bias has the same effect.
        self.filters = nn.Parameter(torch.empty(window, dim))
        bound = 1 / math.sqrt(window)
        nn.init.uniform_(self.filters, -bound, bound)

    def initial(self, batch: int) -> State:
        return {"inputs": self.filters.new_zeros(batch, self.window - 1, self.dim)}

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the filtered inputs, and the last `window` - 1 inputs as the state."""
        if state is None:
            state = self.initial(len(tokens))
        hidden, inputs = filtered(self.dropout(self.embed(tokens)), state["inputs"], self.filters, lengths)
        return hidden, {"inputs": inputs}

    def sequential_steps(self, length: int) -> int:
        return 1

    def longest_path(self, length: int) -> int | None:
        return 1 if length <= self.window else None

    def last(self, tokens: Shaped[Tensor, "B T *F"]) -> Float[Tensor, "B 1 D"]:
        return filtered_last(self.embed, self.dropout, tokens, self.filters)

    @torch.no_grad()
    def set_linear(self, weights: Float[Tensor, "K H"], num_channels: int) -> Float[Tensor, "O D"]:
        horizon, rank = weights.shape[1], min(weights.shape)
        if rank * num_channels > self.dim:
            apart = ", or data.channels=apart" if num_channels > 1 else ""
            raise UserError(
                f"model.fit=least_squares: {horizon} values ahead of {num_channels} joint channels need a model.dim "
                f"of {rank * num_channels:,}, but it is {self.dim:,}; set model.dim={rank * num_channels}{apart}"
            )
        front = cast(ValueProjection, self.embed).linear  # least squares exist for real values only
        filters, of_head = factored(weights.to(self.filters))
        head = weights.new_zeros(horizon, num_channels, self.dim)
        # The remaining units keep their random weights, and the head ignores them at first.
        for channel in range(num_channels):
            units = slice(channel * rank, (channel + 1) * rank)
            front.weight[units] = 0
            front.weight[units, channel] = 1
            front.bias[units] = 0
            self.filters[:, units] = 0
            self.filters[-len(weights) :, units] = filters
            head[:, channel, units] = of_head.to(head)
        return head.flatten(0, 1)


def factored(weights: Float[Tensor, "K H"]) -> tuple[Float[Tensor, "K R"], Float[Tensor, "H R"]]:
    """Factor weights into filters (K, R) and head weights (H, R) with R = min(K, H); their product is `weights`."""
    left, sizes, right = torch.linalg.svd(weights.double(), full_matrices=False)
    # Half of the scale goes to each factor, so that both start at the same scale if they are trained further.
    return (left * sizes.sqrt()).to(weights), (right.t() * sizes.sqrt()).to(weights)
