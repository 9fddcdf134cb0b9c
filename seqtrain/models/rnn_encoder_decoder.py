"""Recurrent encoder-decoder (Cho et al. 2014; Sutskever et al. 2014), attention of Bahdanau or Luong et al. (2015)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, read_by_length
from seqtrain.models.layers.lengths import padding_of, real_lengths
from seqtrain.models.layers.recorder import active, record
from seqtrain.models.layers.recurrence import mirror_index, pack_state, reverse, run_fused, unpack_state

Cell = Literal["rnn", "gru", "lstm"]
Attention = Literal["none", "additive", "dot"]

CORES: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
STEPS: dict[Cell, Callable[..., nn.RNNCellBase]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}

STATE_NAMES: dict[Cell, tuple[str, ...]] = {"rnn": ("hidden",), "gru": ("hidden",), "lstm": ("hidden", "cell")}
"""The tensors that a layer carries, in torch's order."""


class RNNEncoderDecoder(SequenceModel):
    """Goes on from `begin(source)`; its tokens are those of the target, embedded by `target_embed`.

    The decoder's first state is a learned map of the encoder's last one, at each lane's real end. With attention=none
    that is all it learns of the source; additive (Bahdanau) looks back before each step, with the state so far, and
    feeds what it found to the step; dot (Luong, "general") looks back after the recurrence, so all steps are parallel.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL

    def __init__(
        self,
        *,
        embed: nn.Module,
        target_embed: nn.Module,
        cell: Cell,
        dim: int,
        num_layers: int,
        dropout: float,
        bidirectional: bool,
        attention: Attention,
    ) -> None:
        super().__init__()
        if bidirectional and dim % 2:
            raise ValueError(f"dim={dim} must be even: each direction has half of it")
        decoders = {"none": LatentDecoder, "additive": AdditiveDecoder, "dot": DotDecoder}
        self.embed = embed
        self.target_embed = target_embed
        self.dim = dim
        self.num_layers = num_layers
        self.attention = attention
        self.state_names = STATE_NAMES[cell]
        self.dropout = nn.Dropout(dropout)
        directions = 2 if bidirectional else 1
        self.encoder = Encoder(cell=cell, dim=dim, num_layers=num_layers, dropout=dropout, directions=directions)
        # Without a bias, so that an empty source leaves the state that is all zeros.
        width = num_layers * dim
        self.bridge = nn.ModuleDict({name: nn.Linear(width, width, bias=False) for name in self.state_names})
        self.decoder = decoders[attention](cell=cell, dim=dim, num_layers=num_layers, dropout=dropout)

    def initial(self, batch: int) -> State:
        """As if begun from an empty source."""
        like = next(self.encoder.parameters())
        state = {name: like.new_zeros(batch, self.num_layers, self.dim) for name in self.state_names}
        lengths = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state | self._encoder_out(like.new_zeros(batch, 1, self.dim), lengths)

    def begin(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"] | None = None) -> State:
        """Encodes sources; `encoder_out` is zero at padding."""
        encoder_out, last = self.encoder(self.dropout(self.embed(source)), lengths)
        dtype = next(self.encoder.parameters()).dtype  # state keeps the parameters' precision under autocast
        state: State = {}
        for name, value in last.items():
            # One map of all layers at once, from the encoder's last states to the decoder's first.
            first = self.bridge[name](value.flatten(1)).tanh().view_as(value)
            state[name] = first.to(dtype)
        return state | self._encoder_out(encoder_out.to(dtype), real_lengths(source, lengths))

    def _encoder_out(self, encoder_out: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> State:
        """What attention needs of the source, for all steps to come."""
        if self.attention == "none":
            return {}
        state = {"encoder_out": encoder_out, "source_filled": lengths}
        if isinstance(self.decoder, AdditiveDecoder):
            # Part of the state, since every step needs them and they depend on the source alone.
            state["keys"] = self.decoder.key(encoder_out).to(encoder_out.dtype)
        return state

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        if state is None:
            state = self.initial(len(tokens))
        return read_by_length(self._read, tokens, state, lengths)

    def _read(self, tokens: Int[Tensor, "B T"], state: State) -> tuple[Float[Tensor, "B T D"], State]:
        """Reads target tokens that are all real."""
        hidden, after = self.decoder(self.dropout(self.target_embed(tokens)), state)
        new: State = {}
        for name, value in zip(self.state_names, after, strict=True):
            new[name] = value.to(state[name].dtype)
        return self.dropout(hidden), state | new  # with what the state holds of the source

    def flops_per_token(self, length: int, carried: bool) -> float:
        """The mean over tokens of source and target, both `length` long."""
        # A number of a matrix costs two operations a token. Half of all tokens pass the encoder and half the decoder,
        # so the mean over both is the plain sum.
        either_side = count_weights(self.encoder) + count_weights(self.decoder)
        attended = 0
        if self.attention != "none":
            attended = 2 * length * self.dim
        return float(either_side + attended + count_weights(self.bridge) / length)


def count_weights(module: nn.Module) -> int:
    """How many numbers the matrices of a module hold."""
    return sum(weight.numel() for weight in module.parameters() if weight.dim() == 2)


class Encoder(nn.Module):
    """Recurrent layers in one direction or both; each direction has `dim` units, or half of them each."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float, directions: int) -> None:
        super().__init__()
        self.state_names = STATE_NAMES[cell]
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList()
        for _ in range(num_layers):
            cores = [CORES[cell](dim, dim // directions, batch_first=True) for _ in range(directions)]
            self.layers.append(nn.ModuleList(cores))

    def forward(
        self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B S D"], dict[str, Float[Tensor, "B L D"]]]:
        """Outputs of the last layer, zero at padding, and the last states of all layers by name."""
        mirror = mirror_index(x, lengths)
        last: dict[str, list[Float[Tensor, "B D"]]] = {name: [] for name in self.state_names}
        for number, directions in enumerate(self.layers):
            if number:  # dropout stands between layers
                x = self.dropout(x)
            out, ends = self._run(directions[0], x, lengths)  # type: ignore[index]
            if len(directions) == 2:  # type: ignore[arg-type]
                back, back_ends = self._run(directions[1], reverse(x, mirror), lengths)  # type: ignore[index]
                out = torch.cat([out, reverse(back, mirror)], -1)
                ends = {name: torch.cat([value, back_ends[name]], -1) for name, value in ends.items()}
            x = out
            for name, value in ends.items():
                last[name].append(value)
        return x, {name: torch.stack(values, 1) for name, values in last.items()}

    def _run(
        self, core: nn.RNNBase, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B S U"], dict[str, Float[Tensor, "B U"]]]:
        """Outputs of one direction of a layer with U units, and its state at each lane's end."""

        def read(x: Float[Tensor, "b s D"], state: State) -> tuple[Float[Tensor, "b s U"], State]:
            out, after = run_fused(core, x, [state[name] for name in self.state_names])
            return out, dict(zip(self.state_names, after, strict=True))

        like = next(core.parameters())
        state = {name: like.new_zeros(len(x), 1, core.hidden_size) for name in self.state_names}
        out, state = read_by_length(read, x, state, lengths)
        return out, {name: value.squeeze(1) for name, value in state.items()}


def source_weights(scores: Float[Tensor, "B *T S"], state: State) -> Float[Tensor, "B *T S"]:
    """Softmax of scores over the real part of each source; zeros where that is empty."""
    padding = padding_of(state["source_filled"], scores.shape[-1])
    if scores.dim() == 3:  # of many queries (B, T, S), which share their lane's padding
        padding = padding.unsqueeze(1)
    # The lowest finite number, since a row of infinities has no softmax.
    return scores.masked_fill(padding, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(padding, 0.0)


class LatentDecoder(nn.Module):
    """Plain recurrence: nothing but its first state tells of the source."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.state_names = STATE_NAMES[cell]
        between = dropout if num_layers > 1 else 0.0  # torch warns of one that has no place
        self.core = CORES[cell](dim, dim, num_layers, batch_first=True, dropout=between)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Embedded tokens to hidden states, and the carried tensors after them."""
        return run_fused(self.core, x, [state[name] for name in self.state_names])


class DotDecoder(nn.Module):
    """Recurrence first, then a look back: tanh(W [context; hidden]), with scores hidden^T W encoder_out."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.recurrence = LatentDecoder(cell=cell, dim=dim, num_layers=num_layers, dropout=dropout)
        self.query = nn.Linear(dim, dim, bias=False)
        self.readout = nn.Linear(2 * dim, dim)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Embedded tokens to hidden states, and the carried tensors after them."""
        hidden, after = self.recurrence(x, state)
        encoder_out = state["encoder_out"].to(hidden.dtype)
        weights = source_weights(self.query(hidden) @ encoder_out.transpose(1, 2), state)  # (B, T, S)
        record("cross", weights.unsqueeze(1))
        return self.readout(torch.cat([weights @ encoder_out, hidden], -1)).tanh(), after


class AdditiveDecoder(nn.Module):
    """A look back before each step, fed to the step: scores are v^T tanh(W state + U encoder_out).

    What comes out is tanh of a map of state, context and embedded token (a maxout in the paper).
    """

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.state_names = STATE_NAMES[cell]
        self.cells = nn.ModuleList()
        for layer in range(num_layers):
            width = dim if layer else 2 * dim  # the first reads the embedded token beside the context
            self.cells.append(STEPS[cell](width, dim))
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.score = nn.Parameter(torch.empty(dim).uniform_(-(dim**-0.5), dim**-0.5))
        self.readout = nn.Linear(3 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Embedded tokens to hidden states, and the carried tensors after them."""
        # By layer: (hidden,), or (hidden, cell), each (B, D).
        carried = list(zip(*[state[name].unbind(1) for name in self.state_names], strict=True))
        encoder_out = state["encoder_out"]
        outputs, maps = [], []
        for token in x.unbind(1):
            weights = self._weights(carried[-1][0], state)
            # What comes of the state is in its precision, which under autocast is not that of the tokens.
            context = torch.bmm(weights.unsqueeze(1), encoder_out.to(weights.dtype)).squeeze(1).to(token.dtype)
            carried = self._step(torch.cat([token, context], -1), carried)
            outputs.append(torch.cat([carried[-1][0].to(token.dtype), context, token], -1))
            maps.append(weights)
        if active():
            record("cross", torch.stack(maps, 1).unsqueeze(1))
        after = [torch.stack(values, 1) for values in zip(*carried, strict=True)]
        return self.readout(torch.stack(outputs, 1)).tanh(), after

    def _weights(self, hidden: Float[Tensor, "B D"], state: State) -> Float[Tensor, "B S"]:
        """How much one step, with the state before it, looks at each token of the source."""
        scores = (self.query(hidden).unsqueeze(1) + state["keys"]).tanh() @ self.score
        return source_weights(scores, state)

    def _step(
        self, x: Float[Tensor, "B E"], carried: list[tuple[Float[Tensor, "B D"], ...]]
    ) -> list[tuple[Float[Tensor, "B D"], ...]]:
        """The layers' states after one more input."""
        after = []
        for layer, (cell, before) in enumerate(zip(self.cells, carried, strict=True)):
            if layer:
                x = self.dropout(x)
            state = unpack_state(cell(x, pack_state(before)))
            after.append(state)
            x = state[0]
        return after
