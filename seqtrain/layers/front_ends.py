"""Front ends: what stands between the data and a model, from tokens (B, T) to vectors (B, T, E)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class TokenEmbedding(nn.Module):
    """A learned vector per token: `vocabulary` target tokens and one start token, which is input only."""

    def __init__(self, *, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        # So that a tied head's scores of a hidden state of unit scale start with unit variance.
        self.weight = nn.Parameter(torch.empty(vocabulary + 1, dim).normal_(std=dim**-0.5))

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        return F.embedding(tokens, self.weight)

    def scores(self, hidden: Float[Tensor, "... E"]) -> Float[Tensor, "... V"]:
        """Unnormalised log-probabilities of the target tokens with the embedding's own weights (tied head)."""
        return F.linear(hidden, self.weight[: self.vocabulary])
