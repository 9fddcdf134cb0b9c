"""The options of a Transformer block, shared by all its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

Norm = Literal["pre", "post"]
NormKind = Literal["layer", "rms"]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
FeedForwardKind = Literal["plain", "gated"]


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """Sizes and kinds of the parts of a block.

    Args:
        dim: D, the width of the residual stream.
        num_heads: H, the heads of the queries.
        dropout: Share of attention weights and of each part's outputs that are set to zero in training.
        norm: Place of the norms: before each part (pre) or after its sum with the residual stream (post).
        bias: True if linear maps and layer norms have a bias.
        dim_feedforward: Width inside the feed-forward part. None: 4 D, or 8/3 D if gated, for as many weights.
        activation: Function inside the feed-forward part; gelu_tanh is GPT-2's approximation of gelu.
        norm_kind: Layer norm, or RMS norm without bias (Zhang & Sennrich 2019, arXiv 1910.07467).
        norm_eps: Number added to the variance in each norm.
        feed_forward: Two linear maps, or three with a gate (Shazeer 2020, arXiv 2002.05202); with silu it is SwiGLU.
        num_kv_heads: G, the heads of keys and values, each shared by H/G of the queries (Ainslie et al. 2023, arXiv
            2305.13245). None: H.
        head_dim: K, the width of a head. None: D/H.
        qk_norm: True if an RMS norm over K is applied to each query and key (Qwen 3, arXiv 2505.09388).
    """

    dim: int
    num_heads: int
    dropout: float
    norm: Norm
    bias: bool
    dim_feedforward: int | None = None
    activation: Activation = "gelu"
    norm_kind: NormKind = "layer"
    norm_eps: float = 1e-5
    feed_forward: FeedForwardKind = "plain"
    num_kv_heads: int | None = None
    head_dim: int | None = None
    qk_norm: bool = False

    @property
    def head_width(self) -> int:
        """K, the width of a head."""
        return self.dim // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def kv_heads(self) -> int:
        """G, the heads of keys and values."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def inner(self) -> int:
        """Width inside the feed-forward part."""
        if self.dim_feedforward is not None:
            return self.dim_feedforward
        return 8 * self.dim // 3 if self.feed_forward == "gated" else 4 * self.dim

    def make_norm(self) -> nn.Module:
        """Create a norm of the residual stream itself, outside the residual paths."""
        if self.norm_kind == "rms":
            return nn.RMSNorm(self.dim, eps=self.norm_eps)
        return nn.LayerNorm(self.dim, eps=self.norm_eps, bias=self.bias)

    def final_norm(self) -> nn.Module:
        """Create the module after the last block: a norm, except with post-norm, where each block ends with one."""
        return nn.Identity() if self.norm == "post" else self.make_norm()
