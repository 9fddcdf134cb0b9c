"""The Transformer blocks: attention and a feed-forward part, each with a residual path and a norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.layers.attention import (
    BidirectionalSelfAttention,
    Cache,
    CausalSelfAttention,
    CrossAttention,
    SelfAttention,
    SourceKeysValues,
)
from seqtrain.models.layers.slots import KeysValues, Seen, Slots

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "relu"]


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, `width` numbers wide inside; None: four times as wide as x."""

    def __init__(self, *, dim: int, width: int | None, bias: bool, activation: Activation = "gelu") -> None:
        super().__init__()
        if width is None:
            width = 4 * dim
        if width < 1:
            raise ValueError(f"dim_feedforward={width} must be above 0")
        self.activation = activation
        # The name `out` marks what ends a residual path: models scale its first weights by their depth.
        self.wide = nn.Linear(dim, width, bias=bias)
        self.out = nn.Linear(width, dim, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        activate = F.relu if self.activation == "relu" else F.gelu
        return self.out(activate(self.wide(x)))


class ResidualNorm(nn.LayerNorm):
    """The norm of one residual path: it stands before the part (pre) or after the sum (post)."""

    def __init__(self, *, dim: int, norm: Norm, dropout: float, bias: bool) -> None:
        # It is the layer norm itself, so that weights are called norm1.weight, as in torch's own blocks.
        super().__init__(dim, bias=bias)
        self.pre = norm == "pre"
        self.dropout = nn.Dropout(dropout)

    def before(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return the input of the part: normalised if pre-norm, else unchanged."""
        return self(x) if self.pre else x

    def after(self, x: Float[Tensor, "B T D"], change: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Add the part's output `change` to the residual stream `x`; normalise the sum if post-norm."""
        x = x + self.dropout(change).to(x.dtype)  # under autocast: a sum of two precisions takes longer
        return x if self.pre else self(x)


def final_norm(norm: Norm, dim: int, *, bias: bool = True) -> nn.Module:
    """Return the module after the last block: a norm, except with post-norm, where each block already ends with one."""
    if norm == "post":
        return nn.Identity()
    return nn.LayerNorm(dim, bias=bias)


class Block(nn.Module):
    """The parts common to all blocks: attention, attention to a source if any, feed-forward, and a norm for each."""

    # Of each kind of block, and not options: no model mixes them.
    attention_type: type[SelfAttention]
    has_source: bool

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        dim_feedforward: int | None,
        dropout: float,
        norm: Norm,
        bias: bool,
        name: str,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        # The order in which modules are made decides which random numbers become whose first weights.
        sizes = {"dim": dim, "num_heads": num_heads, "dropout": dropout, "bias": bias}
        self.attention = self.attention_type(**sizes, name=f"{name} self")
        if self.has_source:
            self.cross = CrossAttention(**sizes, name=f"{name} cross")
        self.feed_forward = FeedForward(dim=dim, width=dim_feedforward, bias=bias, activation=activation)
        self.norm1 = ResidualNorm(dim=dim, norm=norm, dropout=dropout, bias=bias)
        self.norm2 = ResidualNorm(dim=dim, norm=norm, dropout=dropout, bias=bias)
        if self.has_source:
            self.norm3 = ResidualNorm(dim=dim, norm=norm, dropout=dropout, bias=bias)


class EncoderBlock(Block):
    """Bidirectional self-attention, then feed-forward."""

    attention_type = BidirectionalSelfAttention
    has_source = False

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B 1 1 T"] | None,
        rotary: Float[Tensor, "2 T K"] | None,
    ) -> Float[Tensor, "B T D"]:
        """Return the stream after this block. Without a mask every token is real."""
        x = self.norm1.after(x, self.attention(self.norm1.before(x), mask, rotary))
        return self.norm2.after(x, self.feed_forward(self.norm2.before(x)))


class DecoderBlock(Block):
    """Causal self-attention, then feed-forward."""

    attention_type = CausalSelfAttention
    attention: CausalSelfAttention
    has_source = False

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: Cache | None,
        mask: Bool[Tensor, "B 1 T N"] | None,
        rotary: Float[Tensor, "2 N K"] | None,
        *,
        alone: bool,
    ) -> tuple[Float[Tensor, "B T D"], KeysValues | None]:
        """Return the stream after this block, and the keys and values of this layer.

        `alone`: there is neither cache nor mask, and the keys and values are not returned (None).
        """
        normed, keys_values = self.norm1.before(x), None
        if alone:
            mixed = self.attention.alone(normed, rotary)
        else:
            mixed, keys_values = self.attention(normed, cache, mask, rotary)
        x = self.norm1.after(x, mixed)
        return self.norm2.after(x, self.feed_forward(self.norm2.before(x))), keys_values

    def step(
        self, x: Float[Tensor, "N 1 D"], slots: Slots, seen: Seen, rotary: Float[Tensor, "2 1 K"] | None
    ) -> Float[Tensor, "N 1 D"]:
        """Return the stream of one more token after this block."""
        x = self.norm1.after(x, self.attention.step(self.norm1.before(x), slots, seen, rotary))
        return self.norm2.after(x, self.feed_forward(self.norm2.before(x)))


class CrossDecoderBlock(Block):
    """Causal self-attention, then attention to a source, then feed-forward."""

    attention_type = CausalSelfAttention
    attention: CausalSelfAttention
    has_source = True

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: Cache | None,
        mask: Bool[Tensor, "B 1 T N"] | None,
        source: SourceKeysValues,
        source_mask: Bool[Tensor, "B 1 1 S"] | None,
    ) -> tuple[Float[Tensor, "B T D"], KeysValues]:
        """Return the stream after this block, and the keys and values of this layer's self-attention."""
        mixed, keys_values = self.attention(self.norm1.before(x), cache, mask, None)
        x = self.norm1.after(x, mixed)
        # The keys and values of the source are made once, by `begin`, since no token of the target changes them.
        x = self.norm2.after(x, self.cross(self.norm2.before(x), source, source_mask))
        return self.norm3.after(x, self.feed_forward(self.norm3.before(x))), keys_values

    def step(
        self,
        x: Float[Tensor, "N 1 D"],
        slots: Slots,
        seen: Seen,
        source: SourceKeysValues,
        source_mask: Bool[Tensor, "B 1 1 S"],
    ) -> Float[Tensor, "N 1 D"]:
        """Return the stream of one more token after this block."""
        x = self.norm1.after(x, self.attention.step(self.norm1.before(x), slots, seen, None))
        x = self.norm2.after(x, self.cross.step(self.norm2.before(x), source, source_mask))
        return self.norm3.after(x, self.feed_forward(self.norm3.before(x)))


def count_weights(module: nn.Module) -> int:
    """Count the numbers in the matrices and kernels of a module; each costs two operations a token.

    Embedding tables are left out: a lookup needs no operation.
    """
    tables = [part.weight for part in module.modules() if isinstance(part, nn.Embedding)]
    total = sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)
    return total - sum(table.numel() for table in tables)


def initialise_transformer(parts: Sequence[nn.Module]) -> None:
    """Draw initial weights that keep the scale of their input, forwards and backwards (Glorot & Bengio 2010)."""
    tables: list[nn.Embedding] = []
    for part in parts:
        for module in part.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.Embedding):
                tables.append(module)
    # Last, so that a seed gives the same matrices with a table and without one.
    for table in tables:
        nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
