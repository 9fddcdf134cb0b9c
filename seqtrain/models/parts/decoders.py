"""Decoders of `encoder_decoder`: recurrent ones, and the Transformer.

Recurrent: Cho et al. 2014, Sutskever et al. 2014, with the attention of Bahdanau or of Luong et al. (2015).
Transformer: Vaswani et al. 2017; its state is the source and a growing key-value cache.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import State, read_by_length
from seqtrain.models.layers.attention import padding_mask, window_mask
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.blocks import count_weights
from seqtrain.models.layers.lengths import padding_of, real_lengths
from seqtrain.models.layers.positions import PlacedInput, rotate
from seqtrain.models.layers.recorder import active, record
from seqtrain.models.layers.recurrence import (
    CORES,
    STATE_NAMES,
    STEPS,
    Cell,
    layers_of,
    pack_state,
    run_layers,
    unpack_state,
)
from seqtrain.models.layers.slots import BlockStepper, KeysValues, Seen
from seqtrain.models.parts.encoders import Encoded
from seqtrain.models.stepper import Stepper

Attention = Literal["none", "additive", "dot"]


class RecurrentDecoder(nn.Module):
    """Recurrent layers that begin from a learned map of the encoder's result.

    The map reads the encoder's last states, at each lane's real end, or the mean of its outputs if it has no states.
    With attention=none the decoder learns nothing else of the source. Additive attention (Bahdanau) is computed before
    each step from the current state, and its result is an input of the step. Dot attention (Luong, "general") is
    computed after the recurrence, so all steps are parallel.

    Args:
        encoder_width: W, width of each tensor of the last states, or of the mean.
    """

    def __init__(
        self,
        *,
        cell: Cell,
        dim: int,
        num_layers: int,
        dropout: float,
        attention: Attention,
        encoder_width: int,
        share_layers: bool,
    ) -> None:
        super().__init__()
        decoders = {"none": LatentDecoder, "additive": AdditiveDecoder, "dot": DotDecoder}
        self.dim = dim
        self.num_layers = num_layers
        self.attention = attention
        self.state_names = STATE_NAMES[cell]
        self.dropout = nn.Dropout(dropout)
        # Without a bias, so that an empty source gives a state of zeros.
        width = num_layers * dim
        self.bridge = nn.ModuleDict({name: nn.Linear(encoder_width, width, bias=False) for name in self.state_names})
        self.steps = decoders[attention](
            cell=cell, dim=dim, num_layers=num_layers, dropout=dropout, share_layers=share_layers
        )

    def initial(self, batch: int) -> State:
        """Return the state after an empty source."""
        like = next(self.parameters())
        state = {name: like.new_zeros(batch, self.num_layers, self.dim) for name in self.state_names}
        lengths = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state | self._encoder_out(like.new_zeros(batch, 1, self.dim), lengths)

    def begin(self, encoded: Encoded, lengths: Int[Tensor, " B"]) -> State:
        """Return the first states, and the source tensors that attention needs. `encoder_out` is zero at padding."""
        out, last = encoded
        if last is None:
            out = out.masked_fill(padding_of(lengths, out.shape[1]).unsqueeze(-1), 0.0)
            # The mean of an empty source is 0, like its state.
            last = {"hidden": out.sum(1) / lengths.clamp(min=1).unsqueeze(1)}
        dtype = next(self.parameters()).dtype  # state keeps the parameters' precision under autocast
        state: State = {}
        for name in self.state_names:
            # One map of all layers at once; a cell that the encoder lacks begins, like the rest, from its outputs.
            first = self.bridge[name](last.get(name, last["hidden"])).tanh()
            state[name] = first.unflatten(1, (self.num_layers, self.dim)).to(dtype)
        return state | self._encoder_out(out.to(dtype), lengths)

    def _encoder_out(self, encoder_out: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> State:
        """Return the part of the state that attention reads from the source at every step."""
        if self.attention == "none":
            return {}
        state = {"encoder_out": encoder_out, "source_filled": lengths}
        if isinstance(self.steps, AdditiveDecoder):
            # Part of the state, because every step needs them and they depend only on the source.
            state["keys"] = self.steps.key(encoder_out).to(encoder_out.dtype)
        return state

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, lengths: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the hidden states of embedded tokens, and the state after them."""
        return read_by_length(self._read, x, state, lengths)

    def _read(self, x: Float[Tensor, "B T D"], state: State) -> tuple[Float[Tensor, "B T D"], State]:
        """Read embedded tokens without padding."""
        hidden, after = self.steps(self.dropout(x), state)
        new: State = {}
        for name, value in zip(self.state_names, after, strict=True):
            new[name] = value.to(state[name].dtype)
        return self.dropout(hidden), state | new  # keeping the source's part of the state

    def operations(self, length: int) -> int:
        """Count the floating-point operations of reading `length` target tokens after a source of the same length."""
        attended = 0
        if self.attention != "none":
            attended = 4 * length * length * self.dim
        # The bridge is computed once.
        return 2 * length * count_weights(self.steps) + attended + 2 * count_weights(self.bridge)


def source_weights(scores: Float[Tensor, "B *T S"], state: State) -> Float[Tensor, "B *T S"]:
    """Return the softmax of scores over the real part of each source; zeros for an empty source."""
    padding = padding_of(state["source_filled"], scores.shape[-1])
    if scores.dim() == 3:  # for many queries (B, T, S), which share their lane's padding
        padding = padding.unsqueeze(1)
    # The lowest finite number, because the softmax of a row of -inf is undefined.
    return scores.masked_fill(padding, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(padding, 0.0)


class LatentDecoder(nn.Module):
    """Plain recurrence: only its first state depends on the source."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float, share_layers: bool) -> None:
        super().__init__()
        self.state_names = STATE_NAMES[cell]
        self.dropout = nn.Dropout(dropout)

        def make(count: int, between: float) -> nn.RNNBase:
            return CORES[cell](dim, dim, count, batch_first=True, dropout=between)

        self.core = layers_of(make, num_layers, dropout, share_layers)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Return the hidden states of embedded tokens, and the carried tensors after them."""
        return run_layers(self.core, x, [state[name] for name in self.state_names], self.dropout)


class DotDecoder(nn.Module):
    """Recurrence, then attention: tanh(W [context; hidden]), with scores hidden^T W encoder_out."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float, share_layers: bool) -> None:
        super().__init__()
        self.recurrence = LatentDecoder(
            cell=cell, dim=dim, num_layers=num_layers, dropout=dropout, share_layers=share_layers
        )
        self.query = nn.Linear(dim, dim, bias=False)
        self.readout = nn.Linear(2 * dim, dim)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Return the hidden states of embedded tokens, and the carried tensors after them."""
        hidden, after = self.recurrence(x, state)
        encoder_out = state["encoder_out"].to(hidden.dtype)
        weights = source_weights(self.query(hidden) @ encoder_out.transpose(1, 2), state)  # (B, T, S)
        record("cross", weights.unsqueeze(1))
        return self.readout(torch.cat([weights @ encoder_out, hidden], -1)).tanh(), after


class AdditiveDecoder(nn.Module):
    """Attention before each step, as its input: scores are v^T tanh(W state + U encoder_out).

    The output is tanh of a linear map of state, context and embedded token (a maxout in the paper).
    """

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float, share_layers: bool) -> None:
        super().__init__()
        self.state_names = STATE_NAMES[cell]
        self.cells = nn.ModuleList()
        for layer in range(num_layers):
            width = dim if layer else 2 * dim  # the first layer also reads the context
            shared = share_layers and layer > 1  # the first layer has a different width
            self.cells.append(self.cells[1] if shared else STEPS[cell](width, dim))
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.score = nn.Parameter(torch.empty(dim).uniform_(-(dim**-0.5), dim**-0.5))
        self.readout = nn.Linear(3 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Return the hidden states of embedded tokens, and the carried tensors after them."""
        # By layer: (hidden,), or (hidden, cell), each (B, D).
        carried = list(zip(*[state[name].unbind(1) for name in self.state_names], strict=True))
        encoder_out = state["encoder_out"]
        outputs, maps = [], []
        for token in x.unbind(1):
            weights = self._weights(carried[-1][0], state)
            # Values from the state have its precision, which under autocast differs from that of the tokens.
            context = torch.bmm(weights.unsqueeze(1), encoder_out.to(weights.dtype)).squeeze(1).to(token.dtype)
            carried = self._step(torch.cat([token, context], -1), carried)
            outputs.append(torch.cat([carried[-1][0].to(token.dtype), context, token], -1))
            maps.append(weights)
        if active():
            record("cross", torch.stack(maps, 1).unsqueeze(1))
        after = [torch.stack(values, 1) for values in zip(*carried, strict=True)]
        return self.readout(torch.stack(outputs, 1)).tanh(), after

    def _weights(self, hidden: Float[Tensor, "B D"], state: State) -> Float[Tensor, "B S"]:
        """Return the attention weights of one step over the source tokens, given the state before it."""
        # The keys are computed once per source; only the query is new at each step.
        scores = (self.query(hidden).unsqueeze(1) + state["keys"]).tanh() @ self.score
        return source_weights(scores, state)

    def _step(
        self, x: Float[Tensor, "B E"], carried: list[tuple[Float[Tensor, "B D"], ...]]
    ) -> list[tuple[Float[Tensor, "B D"], ...]]:
        """Return the layers' states after one more input."""
        after = []
        for layer, (cell, before) in enumerate(zip(self.cells, carried, strict=True)):
            if layer:
                x = self.dropout(x)
            state = unpack_state(cell(x, pack_state(before)))
            after.append(state)
            x = state[0]
        return after


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
