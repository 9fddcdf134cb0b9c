"""The Transformer block: attention and a feed-forward part, each with a residual path and a norm."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.layers.attention import Cache, CausalSelfAttention

Norm = Literal["pre", "post"]


class FeedForward(nn.Module):
    """Two linear maps with a GELU between them, four times as wide inside."""

    def __init__(self, *, dim: int, bias: bool) -> None:
        super().__init__()
        self.wide = nn.Linear(dim, 4 * dim, bias=bias)
        self.out = nn.Linear(4 * dim, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.gelu(self.wide(x)))


class DecoderBlock(nn.Module):
    """Causal self-attention, then feed-forward; the norm stands before (pre) or after (post) each residual sum."""

    def __init__(self, *, dim: int, num_heads: int, dropout: float, norm: Norm, bias: bool) -> None:
        super().__init__()
        self.pre = norm == "pre"
        self.attention = CausalSelfAttention(dim=dim, num_heads=num_heads, dropout=dropout, bias=bias)
        self.feed_forward = FeedForward(dim=dim, bias=bias)
        self.norm1 = nn.LayerNorm(dim, bias=bias)
        self.norm2 = nn.LayerNorm(dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, cache: Cache | None, mask: Tensor | None, rotary: Tensor | None
    ) -> tuple[Tensor, Cache]:
        """x (B, T, D) to (B, T, D), and the keys and values of this layer."""
        mixed, kept = self.attention(self.norm1(x) if self.pre else x, cache, mask, rotary)
        x = x + self.dropout(mixed)
        if not self.pre:
            x = self.norm1(x)
        x = x + self.dropout(self.feed_forward(self.norm2(x) if self.pre else x))
        return (x if self.pre else self.norm2(x)), kept
