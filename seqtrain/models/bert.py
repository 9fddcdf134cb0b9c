"""BERT-style encoder (Devlin et al. 2019): every token attends to every token, in both directions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.attention import padding_mask
from seqtrain.models.layers.block_options import Activation, BlockOptions, FeedForwardKind, Norm, NormKind
from seqtrain.models.layers.blocks import EncoderBlock, in_depth
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.models.layers.positions import BASE, Positions, check_sizes, learned_positions, place, rotary_table


class BERT(SequenceModel):
    """A Transformer encoder without state. A token's segment is the number of separators before it.

    With norm=post a layer norm is applied to the embedded tokens, as in the paper; with norm=pre to the last block's
    output.
    """

    capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL

    def __init__(
        self,
        *,
        embed: nn.Module,
        dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float,
        positions: Positions,
        max_length: int | None,
        num_segments: int,
        norm: Norm,
        bias: bool,
        activation: Activation,
        dim_feedforward: int | None = None,
        norm_kind: NormKind = "layer",
        norm_eps: float = 1e-5,
        feed_forward: FeedForwardKind = "plain",
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        qk_norm: bool = False,
        rotary_base: float = BASE,
        share_layers: bool = False,
    ) -> None:
        super().__init__()
        options = BlockOptions(
            dim=dim,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            bias=bias,
            dim_feedforward=dim_feedforward,
            activation=activation,
            norm_kind=norm_kind,
            norm_eps=norm_eps,
            feed_forward=feed_forward,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            qk_norm=qk_norm,
        )
        check_sizes(options, positions, max_length)
        self.embed = embed
        self.dim = dim
        self.head_width = options.head_width
        self.rotary_base = rotary_base
        self.positions: Positions = positions
        self.max_length = max_length
        self.table = learned_positions(max_length, dim)
        self.segments = nn.Embedding(num_segments, dim)
        self.first_norm = options.make_norm() if norm == "post" else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.blocks = in_depth(lambda name: EncoderBlock(options, name), num_layers, share_layers)
        self.norm = options.final_norm()
        self._initialise()

    def _initialise(self) -> None:
        # BERT's own 0.02 fits its width of 768. In a narrow model it keeps attention uniform, and order unused, for
        # long.
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            if isinstance(module, nn.Embedding | TokenEmbedding):
                nn.init.normal_(module.weight, std=0.02)
        # Each block adds to the residual stream twice: this division keeps the sum's variance at that of one block.
        for name, weight in self.named_parameters():
            if name.endswith("out.weight"):
                weight.data.div_(math.sqrt(2 * len(self.blocks)))

    @classmethod
    def idle(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the option for rotary positions if the model has other positions, with the reason."""
        if options["positions"] == "rotary":
            return {}
        return {"rotary_base": f"applies only to positions=rotary, not positions={options['positions']}"}

    def initial(self, batch: int) -> State:
        return {}

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the hidden states. The model has no state, so a given state is ignored."""
        x = self.embed(tokens)
        if self.positions == "sinusoidal":
            x = x * math.sqrt(self.dim)  # as in the paper, because sinusoids have an amplitude of 1
        x = place(x, self.positions, self.table) + self.segments(self._segment(tokens))
        x = self.dropout(self.first_norm(x))
        # Without lengths all tokens are real, and attention without a mask can use torch's faster kernels.
        mask = None if lengths is None else padding_mask(lengths, tokens.shape[1])
        rotary = None
        if self.positions == "rotary":
            rotary = rotary_table(tokens.shape[1], self.head_width, x.device, base=self.rotary_base).to(x.dtype)
        for block in self.blocks:
            x = block(x, mask, rotary)
        return self.norm(x), {}

    def sequential_steps(self, length: int) -> int:
        return len(self.blocks)

    def longest_path(self, length: int) -> int:
        return len(self.blocks)

    def _segment(self, tokens: Shaped[Tensor, "B T *F"]) -> Int[Tensor, "B T"]:
        """Return the segment of each token: the number of separators before it, up to the last segment."""
        if tokens.is_floating_point():  # real values have no separator between two texts
            return torch.zeros(tokens.shape[:2], dtype=torch.long, device=tokens.device)
        separators = tokens == cast(int, self.embed.separator)
        # A separator belongs to the segment that it ends, so it is not counted for its own position.
        return (separators.cumsum(1) - separators.long()).clamp(max=self.segments.num_embeddings - 1)
