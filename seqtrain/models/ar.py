"""Linear autoregression as a causal model: what is to come is a weighted sum of the last values."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.filters import filtered


class AR(SequenceModel):
    """Each of the `dim` channels that `embed` gives is filtered by its own weights over the last `window` inputs.

    With a linear front end and a linear head the whole is linear. Of series whose channels are read each by itself
    (F = 1) it can be every AR(window) of a horizon H as soon as dim is at least the smaller one of window and H, and no
    more than that however large dim is: two factors of one matrix are trained, which have more parameters than the
    matrix. Where F channels are read at once, all share these filters, each unit reads one mixture of the channels, and
    what is learned has at most rank dim. Of tokens it filters embeddings.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, window: int, dropout: float) -> None:
        super().__init__()
        if window < 2:
            raise ValueError(f"window={window} must be above 1: a single value tells nothing of those before it")
        self.embed = embed
        self.dim = dim
        self.window = window
        self.dropout = nn.Dropout(dropout)
        # No bias: that of the head is the same.
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
        """Filtered inputs, and the last `window` - 1 inputs as the state."""
        if state is None:
            state = self.initial(len(tokens))
        hidden, inputs = filtered(self.dropout(self.embed(tokens)), state["inputs"], self.filters, lengths)
        return hidden, {"inputs": inputs}


def factored(weights: Float[Tensor, "K H"], dim: int) -> tuple[Float[Tensor, "K {dim}"], Float[Tensor, "H {dim}"]]:
    """Filters and head weights whose product are the coefficients of an autoregression, as least squares gives them.

    With a front end that gives each unit the value itself, `AR` then forecasts what the closed form does.

    Raises:
        ValueError: where dim is too small: what could not be said exactly is not said at all.
    """
    left, sizes, right = torch.linalg.svd(weights, full_matrices=False)
    # Cut off at dim it would be near, and nobody would see that it is another model.
    if len(sizes) > dim:
        raise ValueError(f"dim={dim}: {len(weights)} values and a horizon of {weights.shape[1]} need {len(sizes)}")
    filters, head = weights.new_zeros(len(weights), dim), weights.new_zeros(weights.shape[1], dim)
    # Half of each size to either side, so that both begin alike where they are trained on.
    filters[:, : len(sizes)] = left * sizes.sqrt()
    head[:, : len(sizes)] = right.t() * sizes.sqrt()
    return filters, head
