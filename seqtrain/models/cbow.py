"""Bag of words: the mean of the embeddings (a deep averaging network, Iyyer et al. 2015, without hidden layers)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.lengths import padding_of, real_lengths


class CBOW(SequenceModel):
    """Every hidden state is the mean of the embeddings of all tokens of its lane, bit for bit in any order."""

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
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        width = tokens.shape[1]
        ends = real_lengths(tokens, lengths)
        padding = padding_of(ends, width)  # (B, T)
        words = self.embed(self._sorted(tokens, padding)).masked_fill(padding.unsqueeze(-1), 0.0)  # (B, T, D)
        mean = words.sum(1) / ends.clamp(min=1).unsqueeze(1)
        return self.dropout(mean).unsqueeze(1).expand(-1, width, -1), {}

    def sequential_steps(self, length: int) -> int:
        return 1

    def longest_path(self, length: int) -> int:
        return 1

    def _sorted(self, tokens: Shaped[Tensor, "B T *F"], padding: Bool[Tensor, "B T"]) -> Shaped[Tensor, "B T *F"]:
        """Sort the tokens by id, with padding last. Real values are unchanged."""
        if tokens.is_floating_point():
            return tokens
        # Sums of floats depend on their order, but the same bag must give the same bits.
        last = torch.iinfo(tokens.dtype).max
        return tokens.masked_fill(padding, last).sort(1).values.masked_fill(padding, 0)
