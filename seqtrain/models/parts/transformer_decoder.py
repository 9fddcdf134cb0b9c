"""The Transformer as a decoder (Vaswani et al. 2017): its state is the source and a growing key-value cache."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import State
from seqtrain.models.layers.attention import padding_mask, window_mask
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.blocks import count_weights
from seqtrain.models.layers.lengths import real_lengths
from seqtrain.models.layers.positions import PlacedInput, rotate
from seqtrain.models.layers.slots import BlockStepper, KeysValues, Seen
from seqtrain.models.parts.encoders import Encoded
from seqtrain.models.stepper import Stepper


class TransformerDecoder(nn.Module):
    """Blocks in which each token attends to earlier target tokens and to the encoded source.

    The final norm is not part of the decoder: the model applies it.
    """

    def __init__(self, options: BlockOptions, *, front: PlacedInput, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.key_shape = options.kv_heads, options.head_width
        self.inner = options.num_heads * options.head_width
        self.front = front
        self.blocks = blocks

    def initial(self, batch: int) -> State:
        """Return the state after an empty source."""
        # One masked key of zeros, because attention without any key has no softmax.
        like = next(self.blocks.parameters())
        num_kv_heads, head_width = self.key_shape
        shape = (batch, num_kv_heads, 1, head_width)
        state: State = {}
        for layer in range(len(self.blocks)):
            self._put(state, "source_", layer, (like.new_zeros(shape), like.new_zeros(shape)))
        state["source_filled"] = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state

    def begin(self, encoded: Encoded, lengths: Int[Tensor, " B"]) -> State:
        """Return keys and values of the source for each layer (B, G, S, K), and `source_filled` (B,)."""
        state: State = {"source_filled": lengths}
        for layer, block in enumerate(self.blocks):
            self._put(state, "source_", layer, block.cross.read(encoded.out, lengths))  # type: ignore[union-attr,operator]
        return state

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, lengths: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the hidden states of embedded tokens, and the state with all their keys and values, right-aligned.

        A state from `begin` has no entries for the target: `key.i`, `value.i` (B, G, N, K) and `filled` (B,).
        """
        length, cached = x.shape[1], 0
        num_before = state.get("filled")  # target tokens that each lane has read; None right after `begin`
        after = {name: value for name, value in state.items() if name.startswith("source_")}
        after["filled"] = real_lengths(x, lengths)
        mask = None
        if num_before is not None:
            after["filled"] = num_before + after["filled"]
            cached = state["key.0"].shape[2]
            mask = window_mask(num_before, length, cached, None)
        # Computed at each call, because lanes and their sources may be reordered or dropped between two steps.
        source_mask = padding_mask(state["source_filled"], state["source_key.0"].shape[2])
        x = self.front(x, num_before)
        rotary = self.front.rotary(cached + length, x)
        for layer, block in enumerate(self.blocks):
            cache = None if num_before is None else (state[f"key.{layer}"], state[f"value.{layer}"])
            source = state[f"source_key.{layer}"], state[f"source_value.{layer}"]
            x, (key, value) = block(x, cache, mask, rotary, source, source_mask)
            if lengths is not None:
                # Padding would separate a lane's keys from later ones, so real keys are moved to the right end.
                key, value = align(key, length, lengths), align(value, length, lengths)
            self._put(after, "", layer, (key, value))
        return x, after

    def stepper(self, embed: nn.Module, norm: nn.Module, state: State, branches: bool) -> Stepper:
        """Return a stepper that continues from a state token by token.

        Args:
            embed: embeds target tokens.
            norm: the module after the last block.
            state: state of all lanes.
            branches: True if a lane will have several continuations, which then share its source.
        """
        return DecoderStepper(self, embed, norm, state, branches)

    def _put(self, state: State, prefix: str, layer: int, keys_values: KeysValues) -> None:
        """Add keys and values to a state, which keeps the parameters' precision under autocast."""
        dtype = next(self.blocks.parameters()).dtype
        key, value = keys_values
        state[f"{prefix}key.{layer}"] = key.to(dtype)
        state[f"{prefix}value.{layer}"] = value.to(dtype)

    def operations(self, length: int) -> int:
        """Count the floating-point operations of reading `length` target tokens after a source of the same length."""
        # A token attends to the target and to the source: four products per layer.
        attended = 8 * length * length * self.inner * len(self.blocks)
        return 2 * length * count_weights(self.blocks) + attended


class DecoderStepper(BlockStepper):
    """Reads token by token: keys are written in place, and rows of one lane share one source."""

    def __init__(
        self, decoder: TransformerDecoder, embed: nn.Module, norm: nn.Module, state: State, branches: bool
    ) -> None:
        self.decoder, self.embed, self.norm = decoder, embed, norm
        filled = state.get("filled", torch.zeros_like(state["source_filled"]))
        self.sources: list[KeysValues] = []
        prefixes: list[KeysValues] = []
        for layer in range(len(decoder.blocks)):
            source = state[f"source_key.{layer}"], state[f"source_value.{layer}"]
            self.sources.append(source)
            nothing = source[0][:, :, :0]
            key, value = state.get(f"key.{layer}", nothing), state.get(f"value.{layer}", nothing)
            table = decoder.front.rotary(key.shape[2], key)
            prefixes.append((key if table is None else rotate(key, table), value))
        self.source_mask = padding_mask(state["source_filled"], self.sources[0][0].shape[2])
        super().__init__(prefixes, filled, attention_window=None, branches=branches)

    def step(self, tokens: Int[Tensor, "N 1"], seen: Seen) -> Float[Tensor, "N 1 D"]:
        x = self.decoder.front(self.embed(tokens), self.num_before)
        rotary = self.decoder.front.rotary(1, x, self.slot)
        for block, slots, source in zip(self.decoder.blocks, self.layers, self.sources, strict=True):
            x = block.step(x, slots, seen, rotary, source, self.source_mask)  # type: ignore[operator]
        return self.norm(x)

    def keep_lanes(self, lanes: Int[Tensor, " B"] | None) -> None:
        if lanes is None:
            return
        self.source_mask = self.source_mask[lanes]
        self.sources = [(key.index_select(0, lanes), value.index_select(0, lanes)) for key, value in self.sources]


def align(keys: Float[Tensor, "B G N K"], length: int, lengths: Int[Tensor, " B"]) -> Float[Tensor, "B G M K"]:
    """Right-align the keys of lanes whose last `length` tokens are right-padded.

    Returns:
        The keys, zero where a lane has none; M is as small as the longest lane allows.
    """
    longest = int(lengths.max())
    width = keys.shape[2] - length + longest
    # A lane that is shorter by n than the longest moves n positions to the right; its first n have no key.
    index = torch.arange(width, device=keys.device) - (longest - lengths).unsqueeze(1)  # (B, M)
    kept = keys.gather(2, index.clamp(min=0)[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3]))
    return kept.masked_fill((index < 0)[:, None, :, None], 0.0)
