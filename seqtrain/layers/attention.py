"""Causal self-attention with a sliding window and a key-value cache that is passed in and out."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.layers.positions import rotate

Cache = tuple[Float[Tensor, "B H M K"], Float[Tensor, "B H M K"]]


def window_mask(filled: Int[Tensor, " B"], length: int, memory: int) -> Bool[Tensor, "B 1 T M+T"]:
    """Which of M cached and T new keys each of T queries sees: itself and exactly the M tokens before it.

    Key j stands M - j tokens before the first query; the cache is right-aligned, so its last `filled` keys are real.
    """
    key = torch.arange(memory + length, device=filled.device)
    ahead = key - torch.arange(length, device=filled.device).unsqueeze(1)  # (T, M+T): 0 = oldest in the window
    window = (ahead >= 0) & (ahead <= memory)
    real = key >= (memory - filled).unsqueeze(1)  # (B, M+T)
    return (window & real.unsqueeze(1)).unsqueeze(1)


class CausalSelfAttention(nn.Module):
    """Multi-head attention of each token to itself and the tokens before it (Vaswani et al. 2017)."""

    def __init__(self, *, dim: int, num_heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(dim, 3 * dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: Cache | None,
        mask: Bool[Tensor, "B 1 T M+T"] | None,
        rotary: Float[Tensor, "2 M+T K"] | None,
    ) -> tuple[Float[Tensor, "B T D"], Cache]:
        """Gives the mixed values, and all keys and values (cached and new), unrotated.

        Without a mask each token sees every token before it.
        """
        batch, length, dim = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (B, H, T, K)
        if cache is not None:
            # The state is kept in the parameters' precision; under autocast it joins keys of a lower one.
            key = torch.cat([cache[0].to(key.dtype), key], 2)
            value = torch.cat([cache[1].to(value.dtype), value], 2)
        turned = key
        if rotary is not None:
            query, turned = rotate(query, rotary[:, -length:]), rotate(key, rotary)
        mixed = F.scaled_dot_product_attention(
            query,
            turned,
            value,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=mask is None,
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim)), (key, value)
