"""Stack of dilated convolutions (TCN: Bai et al. 2018, arXiv 1803.01271), with pre-norm residual blocks."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.convolution import TimeConvolution
from seqtrain.models.layers.lengths import last_inputs, padding_of

MAX_FIELD = 2**20  # maximum receptive field: a lane's state contains all its tokens


class CNN(SequenceModel):
    """Blocks of two convolutions each; the dilation doubles from block to block, from 1 to 2^(num_layers - 1).

    A hidden state sees `receptive_field` = 1 + 2 (kernel_size - 1) (2^num_layers - 1) tokens. If causal, these are the
    token itself and those just before it; else half of the others are on either side. Tokens further away are not seen,
    even by a BIDIRECTIONAL model.
    """

    def __init__(
        self, *, embed: nn.Module, dim: int, num_layers: int, kernel_size: int, dropout: float, causal: bool
    ) -> None:
        super().__init__()
        if not causal and kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={kernel_size} must be odd with causal=false: the taps are symmetric")
        # Number of tokens beyond its own that one convolution of each layer sees.
        self.reaches = [(kernel_size - 1) * 2**layer for layer in range(num_layers)]
        if self.receptive_field > MAX_FIELD:
            raise ValueError(
                f"num_layers={num_layers}: sees more than {MAX_FIELD:,} tokens with kernel_size={kernel_size}; "
                f"use fewer layers"
            )
        self.embed = embed
        self.dim = dim
        self.causal = causal
        self.capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL
        if causal:
            self.capabilities = (
                Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL
            )
        self.dropout = nn.Dropout(dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(num_layers + 1))
        self.blocks = nn.ModuleList()
        for layer in range(num_layers):
            convolutions = [TimeConvolution(dim, dim, kernel_size, dilation=2**layer) for _ in range(2)]
            self.blocks.append(nn.ModuleList(convolutions))

    @property
    def receptive_field(self) -> int:
        """Number of tokens that a hidden state can depend on, including its own."""
        return 1 + 2 * sum(self.reaches)

    def sequential_steps(self, length: int) -> int:
        return 2 * len(self.blocks)

    def longest_path(self, length: int) -> int | None:
        # The deepest convolutions reach farthest; a path passes all layers, with two convolutions each.
        return 2 * len(self.blocks) if length <= self.receptive_field else None

    def initial(self, batch: int) -> State:
        if not self.causal:
            return {}
        like = next(self.blocks.parameters())
        state: State = {}
        for layer, reach in enumerate(self.reaches):
            state[f"input.{layer}.0"] = like.new_zeros(batch, reach, self.dim)
            state[f"input.{layer}.1"] = like.new_zeros(batch, reach, self.dim)
        return state

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the hidden states, and for each convolution the last inputs that its later outputs will need."""
        if state is None:
            state = self.initial(len(tokens))
        after: State = {}
        padding = None
        if lengths is not None:
            padding = padding_of(lengths, tokens.shape[1]).unsqueeze(-1)
        x = self.dropout(self.embed(tokens))
        for layer, block in enumerate(self.blocks):
            inner = self.norms[layer](x)
            for number, convolution in enumerate(block):  # type: ignore[arg-type]
                if number:
                    inner = self.dropout(F.gelu(inner))
                name, reach = f"input.{layer}.{number}", self.reaches[layer]
                inner = self._extend(inner, state.get(name), reach, padding)
                if self.causal:
                    after[name] = last_inputs(inner, lengths, reach).to(state[name].dtype)
                # A convolution takes (B, D, T), and returns T outputs for T + reach inputs.
                inner = convolution(inner.transpose(1, 2)).transpose(1, 2)
            x = x + self.dropout(inner)
        return self.norms[-1](x), after

    def _extend(
        self,
        x: Float[Tensor, "B T D"],
        before: Float[Tensor, "B {reach} D"] | None,
        reach: int,
        padding: Bool[Tensor, "B T 1"] | None,
    ) -> Float[Tensor, "B T+{reach} D"]:
        """Prepend to x the `reach` earlier inputs that T outputs need, or pad with zeros on either side."""
        if before is not None:
            return torch.cat([before.to(x.dtype), x], 1)
        # Positions after the end are padding for a convolution too, so their content must be zero.
        if padding is not None:
            x = x.masked_fill(padding, 0.0)
        return F.pad(x, (0, 0, reach // 2, reach // 2))
