"""The Transformer blocks: attention and a feed-forward part, each with a residual path and a norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.layers.attention import (
    BidirectionalSelfAttention,
    Blocks,
    Cache,
    CausalSelfAttention,
    CrossAttention,
    SelfAttention,
    SourceKeysValues,
)
from seqtrain.models.layers.block_options import Activation, BlockOptions
from seqtrain.models.layers.joined import Joined
from seqtrain.models.layers.recorder import EACH_LAYER
from seqtrain.models.layers.slots import KeysValues, Seen, Slots

M = TypeVar("M", bound=nn.Module)

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Two linear maps with an activation between them; gated, the first one returns a gate and the gated values."""

    def __init__(self, options: BlockOptions) -> None:
        super().__init__()
        dim, width = options.dim, options.inner
        self.gated = options.feed_forward == "gated"
        self.activate = ACTIVATIONS[options.activation]
        # The name `out` marks the end of a residual path: models scale its initial weights by depth.
        self.wide = nn.Linear(dim, 2 * width if self.gated else width, bias=options.bias)
        self.out = nn.Linear(width, dim, bias=options.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        wide = self.wide(x)
        if self.gated:
            gate, wide = wide.chunk(2, -1)
            return self.out(self.activate(gate) * wide)
        return self.out(self.activate(wide))


class ResidualNorm(nn.Module):
    """The norm of one residual path: applied before the part (pre) or after the sum (post)."""

    bias: Float[Tensor, " D"] | None

    def __init__(self, options: BlockOptions) -> None:
        super().__init__()
        # Registered directly, so that weights are named norm1.weight, as in torch's own blocks.
        self.weight = nn.Parameter(torch.ones(options.dim))
        self.rms = options.norm_kind == "rms"
        bias = options.bias and not self.rms
        self.register_parameter("bias", nn.Parameter(torch.zeros(options.dim)) if bias else None)
        self.eps = options.norm_eps
        self.pre = options.norm == "pre"
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        if self.rms:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def before(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return the input of the part: normalised if pre-norm, else unchanged."""
        return self(x) if self.pre else x

    def after(self, x: Float[Tensor, "B T D"], change: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Add the part's output `change` to the residual stream `x`; normalise the sum if post-norm."""
        x = x + self.dropout(change).to(x.dtype)  # under autocast: a sum of two precisions takes longer
        return x if self.pre else self(x)


class Block(nn.Module):
    """The parts common to all blocks: attention, attention to a source if any, feed-forward, and a norm for each."""

    # Attributes of each kind of block instead of options, because no model mixes them.
    attention_type: type[SelfAttention]
    has_source: bool

    def __init__(self, options: BlockOptions, name: str) -> None:
        super().__init__()
        # The order in which modules are created decides which random numbers initialise which weights.
        self.attention = self.attention_type(options, f"{name} self")
        if self.has_source:
            self.cross = CrossAttention(options, f"{name} cross")
        self.feed_forward = FeedForward(options)
        self.norm1, self.norm2 = ResidualNorm(options), ResidualNorm(options)
        if self.has_source:
            self.norm3 = ResidualNorm(options)


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
        mask: Bool[Tensor, "B 1 T N"] | Blocks | Joined | None,
        rotary: Float[Tensor, "2 N K"] | None,
        *,
        alone: bool,
    ) -> tuple[Float[Tensor, "B T D"], KeysValues | None]:
        """Return the stream after this block, and the keys and values of this layer.

        `alone`: without cache and mask; the keys and values are returned as None.
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
        rotary: Float[Tensor, "2 N K"] | None,
        source: SourceKeysValues,
        source_mask: Bool[Tensor, "B 1 1 S"] | None,
    ) -> tuple[Float[Tensor, "B T D"], KeysValues]:
        """Return the stream after this block, and the keys and values of this layer's self-attention."""
        mixed, keys_values = self.attention(self.norm1.before(x), cache, mask, rotary)
        x = self.norm1.after(x, mixed)
        # `begin` computes the keys and values of the source once, since no token of the target changes them.
        x = self.norm2.after(x, self.cross(self.norm2.before(x), source, source_mask))
        return self.norm3.after(x, self.feed_forward(self.norm3.before(x))), keys_values

    def step(
        self,
        x: Float[Tensor, "N 1 D"],
        slots: Slots,
        seen: Seen,
        rotary: Float[Tensor, "2 1 K"] | None,
        source: SourceKeysValues,
        source_mask: Bool[Tensor, "B 1 1 S"],
    ) -> Float[Tensor, "N 1 D"]:
        """Return the stream of one more token after this block."""
        x = self.norm1.after(x, self.attention.step(self.norm1.before(x), slots, seen, rotary))
        x = self.norm2.after(x, self.cross.step(self.norm2.before(x), source, source_mask))
        return self.norm3.after(x, self.feed_forward(self.norm3.before(x)))


def in_depth(make: Callable[[str], M], num_layers: int, share_layers: bool) -> nn.ModuleList:
    """Return the layers of a model, in order.

    Args:
        make: Creates a layer with this name, such as `layer 1`.
        num_layers: L.
        share_layers: True if one layer is applied L times (as in ALBERT, Lan et al. 2020, arXiv 1909.11942).
    """
    if share_layers:  # one module in L positions, so that its weights stay shared wherever they are moved
        return nn.ModuleList([make(EACH_LAYER)] * num_layers)
    return nn.ModuleList(make(EACH_LAYER.format(layer + 1)) for layer in range(num_layers))


def count_weights(module: nn.Module) -> int:
    """Count the numbers in the matrices and kernels of a module; each costs two operations per token.

    Embedding tables are left out: a lookup needs no operation. Layers that share weights are counted separately.
    """
    total = 0
    for _, part in module.named_modules(remove_duplicate=False):
        if not isinstance(part, nn.Embedding):
            total += sum(weight.numel() for weight in part.parameters(recurse=False) if weight.dim() > 1)
    return total


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
    # Last, so that a seed gives the same matrices with and without a table.
    for table in tables:
        nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
