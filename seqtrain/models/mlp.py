"""Feed-forward network over a window of the last tokens (Bengio et al. 2003)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.convolution import TimeConvolution
from seqtrain.models.layers.lengths import last_inputs

Activation = Literal["tanh", "relu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}


class MLP(SequenceModel):
    """Hidden layers over the concatenated embeddings of a token and of the `window` - 1 tokens before it.

    Earlier tokens are not seen. The window is padded with zeros before the first token.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(
        self,
        *,
        embed: nn.Module,
        dim: int,
        num_layers: int,
        window: int,
        dropout: float,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        self.embed = embed
        self.dim = dim
        self.window = window
        self.dropout = nn.Dropout(dropout)
        self.activate = ACTIVATIONS[activation]
        # A linear map of the whole window, applied at each token, is a convolution.
        self.first = TimeConvolution(dim, dim, window)
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(num_layers - 1))

    def initial(self, batch: int) -> State:
        return {"inputs": self.first.weight.new_zeros(batch, self.window - 1, self.dim)}

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the last hidden layer; the state holds the last `window` - 1 embeddings."""
        if state is None:
            state = self.initial(len(tokens))
        x = self.dropout(self.embed(tokens))
        inputs = torch.cat([state["inputs"].to(x.dtype), x], 1)
        x = self.dropout(self.activate(self.first(inputs.transpose(1, 2)).transpose(1, 2)))
        for layer in self.layers:
            x = self.dropout(self.activate(layer(x)))
        return x, {"inputs": last_inputs(inputs, lengths, self.window - 1).to(state["inputs"].dtype)}

    def sequential_steps(self, length: int) -> int:
        return 1 + len(self.layers)

    def longest_path(self, length: int) -> int | None:
        return 1 + len(self.layers) if length <= self.window else None
