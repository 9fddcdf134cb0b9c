"""Bag of words: the mean of the embeddings (a deep averaging network, Iyyer et al. 2015, without hidden layers)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.lengths import padding_of, real_lengths


class CBOW(SequenceModel):
    """Every hidden state is the mean of the embeddings of all tokens of its lane, the same bit for bit in any order."""

    capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, dropout: float) -> None:
        super().__init__()
        self.embed = embed
        self.dim = dim
        self.dropout = nn.Dropout(dropout)

    def initial(self, batch: int) -> State:
        return {}

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        width = tokens.shape[1]
        ends = real_lengths(tokens, lengths)
        padding = padding_of(ends, width)  # (B, T)
        # Sums of floats depend on their order, so the order is made that of the ids, with padding behind them all.
        last = torch.iinfo(tokens.dtype).max
        bag = tokens.masked_fill(padding, last).sort(1).values.masked_fill(padding, 0)
        words = self.embed(bag).masked_fill(padding.unsqueeze(-1), 0.0)  # (B, T, D)
        mean = words.sum(1) / ends.clamp(min=1).unsqueeze(1)
        return self.dropout(mean).unsqueeze(1).expand(-1, width, -1), {}
