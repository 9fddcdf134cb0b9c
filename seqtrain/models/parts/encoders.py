"""Encoders, which read a whole source for a decoder of any kind."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import State, read_by_length
from seqtrain.models.cnn import CNN
from seqtrain.models.layers.attention import padding_mask
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.blocks import count_weights, in_depth
from seqtrain.models.layers.positions import PlacedInput
from seqtrain.models.layers.recurrence import CORES, STATE_NAMES, Cell, mirror_index, reverse, run_fused


class Encoded(NamedTuple):
    """An encoded source."""

    out: Float[Tensor, "B S D"]  # one vector for each token; arbitrary at padding
    last: dict[str, Float[Tensor, "B W"]] | None  # the states after each lane's last token; None without recurrence


class TransformerEncoder(nn.Module):
    """Blocks in which each token attends to every token of the source (Vaswani et al. 2017); without a final norm."""

    def __init__(self, options: BlockOptions, *, front: PlacedInput, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.state_width = options.dim  # width of the vector that a recurrent decoder begins from
        self.inner = options.num_heads * options.head_width
        self.front = front
        self.blocks = blocks

    def forward(self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None) -> Encoded:
        """Read embedded tokens, right-padded if `lengths` is given."""
        # Without lengths all tokens are real, and attention without a mask can use torch's faster kernels.
        mask = None if lengths is None else padding_mask(lengths, x.shape[1])
        x = self.front(x)
        rotary = self.front.rotary(x.shape[1], x)
        for block in self.blocks:
            x = block(x, mask, rotary)
        return Encoded(x, None)

    def operations(self, length: int) -> int:
        """Count the floating-point operations of reading `length` tokens."""
        # Each token is scored against each token and mixes them: two products per layer, of two operations each.
        attended = 4 * length * length * self.inner * len(self.blocks)
        return 2 * length * count_weights(self.blocks) + attended


class ConvolutionalEncoder(nn.Module):
    """The non-causal CNN. A token sees its receptive field, not the whole source."""

    def __init__(self, *, dim: int, num_layers: int, dropout: float, kernel_size: int) -> None:
        super().__init__()
        self.state_width = dim
        self.cnn = CNN(
            embed=nn.Identity(),  # its input is already embedded
            dim=dim,
            num_layers=num_layers,
            kernel_size=kernel_size,
            dropout=dropout,
            causal=False,
        )

    def forward(self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None) -> Encoded:
        """Read embedded tokens, right-padded if `lengths` is given."""
        return Encoded(self.cnn(x, None, lengths)[0], None)

    def operations(self, length: int) -> int:
        """Count the floating-point operations of reading `length` tokens."""
        return 2 * length * count_weights(self)


class RecurrentEncoder(nn.Module):
    """Recurrent layers in one or both directions; `dim` units, or half as many in each of two directions."""

    def __init__(
        self, *, cell: Cell, dim: int, num_layers: int, dropout: float, bidirectional: bool, share_layers: bool
    ) -> None:
        super().__init__()
        if bidirectional and dim % 2:
            raise ValueError(f"dim={dim} must be even: each direction gets half of it")
        directions = 2 if bidirectional else 1
        self.bidirectional = bidirectional
        self.state_width = num_layers * dim
        self.state_names = STATE_NAMES[cell]
        self.dropout = nn.Dropout(dropout)

        def make(name: str) -> nn.ModuleList:
            return nn.ModuleList(CORES[cell](dim, dim // directions, batch_first=True) for _ in range(directions))

        self.layers = in_depth(make, num_layers, share_layers)

    def forward(self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None) -> Encoded:
        """Read embedded tokens, right-padded if `lengths` is given; return zeros at padding."""
        # The backward direction begins at each lane's last real token, not in its padding.
        mirror = mirror_index(x, lengths)
        last: dict[str, list[Float[Tensor, "B D"]]] = {name: [] for name in self.state_names}
        for directions in self.layers:
            x = self.dropout(x)
            out, ends = self._run(directions[0], x, lengths)  # type: ignore[index]
            if len(directions) == 2:  # type: ignore[arg-type]
                back, back_ends = self._run(directions[1], reverse(x, mirror), lengths)  # type: ignore[index]
                out = torch.cat([out, reverse(back, mirror)], -1)
                ends = {name: torch.cat([value, back_ends[name]], -1) for name, value in ends.items()}
            x = out
            for name, value in ends.items():
                last[name].append(value)
        return Encoded(x, {name: torch.cat(values, -1) for name, values in last.items()})

    def _run(
        self, core: nn.RNNBase, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B S U"], dict[str, Float[Tensor, "B U"]]]:
        """Return the outputs of one direction of a layer with U units, and its state at each lane's end."""

        def read(x: Float[Tensor, "b s D"], state: State) -> tuple[Float[Tensor, "b s U"], State]:
            out, after = run_fused(core, x, [state[name] for name in self.state_names])
            return out, dict(zip(self.state_names, after, strict=True))

        like = next(core.parameters())
        state = {name: like.new_zeros(len(x), 1, core.hidden_size) for name in self.state_names}
        out, state = read_by_length(read, x, state, lengths)
        return out, {name: value.squeeze(1) for name, value in state.items()}

    def operations(self, length: int) -> int:
        """Count the floating-point operations of reading `length` tokens."""
        return 2 * length * count_weights(self)
