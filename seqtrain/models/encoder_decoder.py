"""The Transformer encoder-decoder (Vaswani et al. 2017), whose state is the source and a growing key-value cache."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.attention import KeysValues, padding_mask, window_mask
from seqtrain.models.layers.blocks import Activation, CrossDecoderBlock, EncoderBlock, Norm, final_norm
from seqtrain.models.layers.lengths import real_lengths
from seqtrain.models.layers.positions import check_sizes, learned_positions, place

AbsolutePositions = Literal["sinusoidal", "learned", "none"]


class EncoderDecoder(SequenceModel):
    """Reads the tokens of a target, each of which attends to those before it and to the whole of the source.

    Both sides are `num_layers` deep. Embedded tokens are scaled by the root of `dim`, whatever the positions.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL

    def __init__(
        self,
        *,
        embed: nn.Module,
        target_embed: nn.Module,
        dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float,
        positions: AbsolutePositions,
        max_length: int | None,
        norm: Norm,
        activation: Activation,
        dim_feedforward: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(dim, num_heads, positions, max_length)
        self.embed = embed
        self.target_embed = target_embed
        self.dim = dim
        self.num_heads = num_heads
        self.positions: AbsolutePositions = positions
        self.max_length = max_length
        self.table = learned_positions(max_length, dim)
        self.target_table = learned_positions(max_length, dim)
        self.dropout = nn.Dropout(dropout)
        sizes = {"dim": dim, "num_heads": num_heads, "dim_feedforward": dim_feedforward}
        shape = {**sizes, "dropout": dropout, "norm": norm, "bias": True, "activation": activation}
        names = [f"layer {layer + 1}" for layer in range(num_layers)]
        self.encoder = nn.ModuleList(EncoderBlock(**shape, name=f"{name} source") for name in names)
        self.decoder = nn.ModuleList(CrossDecoderBlock(**shape, name=name) for name in names)
        self.source_norm = final_norm(norm, dim)
        self.norm = final_norm(norm, dim)
        self._initialise()

    def _initialise(self) -> None:
        """First weights that keep the scale of what they read, forwards and backwards."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for table in (self.table, self.target_table):
            if table is not None:
                nn.init.normal_(table.weight, std=self.dim**-0.5)

    def initial(self, batch: int) -> State:
        """As if begun from an empty source."""
        like = next(self.decoder.parameters())
        shape = (batch, self.num_heads, 1, self.dim // self.num_heads)
        state: State = {}
        for layer in range(len(self.decoder)):
            self._put(state, "source_", layer, (like.new_zeros(shape), like.new_zeros(shape)))
        state["source_filled"] = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state

    def begin(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"] | None = None) -> State:
        """The source, read: keys and values for each layer of the decoder (B, H, S, K), and `source_filled` (B,)."""
        # Without lengths every token is real, and attention without a mask takes torch's faster kernels.
        mask = None if lengths is None else padding_mask(lengths, source.shape[1])
        x = self.dropout(place(self.embed(source) * math.sqrt(self.dim), self.positions, self.table))
        for block in self.encoder:
            x = block(x, mask, None)
        x = self.source_norm(x)
        source_lengths = real_lengths(source, lengths)
        state: State = {"source_filled": source_lengths}
        for layer, block in enumerate(self.decoder):
            self._put(state, "source_", layer, block.cross.read(x, source_lengths))  # type: ignore[union-attr,operator]
        return state

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Hidden states of target tokens, and the state with all their keys and values, right-aligned.

        A state that `begin` gave has no entries for the target: `key.i`, `value.i` (B, H, N, K) and `filled` (B,).
        """
        length = tokens.shape[1]
        if state is None:
            state = self.initial(len(tokens))
        num_before = state.get("filled")  # target tokens that each lane has read; None right after `begin`
        x = place(self.target_embed(tokens) * math.sqrt(self.dim), self.positions, self.target_table, num_before)
        x = self.dropout(x)
        after = {name: value for name, value in state.items() if name.startswith("source_")}
        after["filled"] = real_lengths(tokens, lengths)
        mask = None
        if num_before is not None:
            after["filled"] = num_before + after["filled"]
            mask = window_mask(num_before, length, state["key.0"].shape[2], None)
        source_mask = padding_mask(state["source_filled"], state["source_key.0"].shape[2])
        for layer, block in enumerate(self.decoder):
            cache = None if num_before is None else (state[f"key.{layer}"], state[f"value.{layer}"])
            source = state[f"source_key.{layer}"], state[f"source_value.{layer}"]
            x, (key, value) = block(x, cache, mask, source, source_mask)
            if lengths is not None:
                # Padding stands between a lane's keys and those to come: what is real is moved to the right end.
                key, value = align(key, length, lengths), align(value, length, lengths)
            self._put(after, "", layer, (key, value))
        return self.norm(x), after

    def _put(self, state: State, prefix: str, layer: int, keys_values: KeysValues) -> None:
        """Adds keys and values to a state, which keeps the parameters' precision under autocast."""
        dtype = next(self.decoder.parameters()).dtype
        key, value = keys_values
        state[f"{prefix}key.{layer}"] = key.to(dtype)
        state[f"{prefix}value.{layer}"] = value.to(dtype)


def align(keys: Float[Tensor, "B H N K"], length: int, lengths: Int[Tensor, " B"]) -> Float[Tensor, "B H M K"]:
    """Right-aligns the keys of lanes whose last `length` tokens are right-padded.

    Returns:
        The keys, zero where a lane has none; M is as small as the longest lane allows.
    """
    longest = int(lengths.max())
    width = keys.shape[2] - length + longest
    # A lane that is shorter by n than the longest moves n places to the right, and its first n have no key.
    index = torch.arange(width, device=keys.device) - (longest - lengths).unsqueeze(1)  # (B, M)
    kept = keys.gather(2, index.clamp(min=0)[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3]))
    return kept.masked_fill((index < 0)[:, None, :, None], 0.0)
