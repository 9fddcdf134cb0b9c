"""Recurrent encoder-decoder (Cho et al. 2014; Sutskever et al. 2014), attention of Bahdanau or Luong et al. (2015)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, read_by_length
from seqtrain.models.layers.recorder import active, record

Cell = Literal["rnn", "gru", "lstm"]
Attention = Literal["none", "additive", "dot"]

CORES: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
STEPS: dict[Cell, Callable[..., nn.RNNCellBase]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


def parts_of(cell: Cell) -> tuple[str, ...]:
    """Names of the tensors that a layer carries."""
    return ("hidden", "cell") if cell == "lstm" else ("hidden",)


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
        self.parts = parts_of(cell)
        self.dropout = nn.Dropout(dropout)
        self.encoder = Encoder(
            cell=cell, dim=dim, num_layers=num_layers, dropout=dropout, directions=2 if bidirectional else 1
        )
        # Without a bias, so that an empty source leaves the state that is all zeros.
        width = num_layers * dim
        self.bridge = nn.ModuleDict({part: nn.Linear(width, width, bias=False) for part in self.parts})
        self.decoder = decoders[attention](cell=cell, dim=dim, num_layers=num_layers, dropout=dropout)

    def initial(self, batch: int) -> State:
        """As if begun from an empty source."""
        like = next(self.encoder.parameters())
        state = {part: like.new_zeros(batch, self.num_layers, self.dim) for part in self.parts}
        filled = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state | self._encoder_out(like.new_zeros(batch, 1, self.dim), filled)

    def begin(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"] | None = None) -> State:
        """Encodes sources; `encoder_out` is zero at padding."""
        encoder_out, last = self.encoder(self.dropout(self.embed(source)), lengths)
        filled = torch.full((len(source),), source.shape[1], device=source.device) if lengths is None else lengths
        state = {part: self.bridge[part](last[part].flatten(1)).tanh().view_as(last[part]) for part in self.parts}
        dtype = next(self.encoder.parameters()).dtype  # state keeps the parameters' precision under autocast
        return {name: value.to(dtype) for name, value in state.items()} | self._encoder_out(
            encoder_out.to(dtype), filled
        )

    def _encoder_out(self, encoder_out: Float[Tensor, "B S D"], filled: Int[Tensor, " B"]) -> State:
        """What attention needs of the source, for all steps to come."""
        if self.attention == "none":
            return {}
        state = {"encoder_out": encoder_out, "source_filled": filled}
        if isinstance(self.decoder, AdditiveDecoder):
            state["keys"] = self.decoder.key(encoder_out).to(encoder_out.dtype)
        return state

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        state = self.initial(len(tokens)) if state is None else state
        if lengths is None:
            return self._read(tokens, state)
        return read_by_length(self._read, tokens, state, lengths)

    def _read(self, tokens: Int[Tensor, "B T"], state: State) -> tuple[Float[Tensor, "B T D"], State]:
        hidden, after = self.decoder(self.dropout(self.target_embed(tokens)), state)
        new = {part: value.to(state[part].dtype) for part, value in zip(self.parts, after, strict=True)}
        return self.dropout(hidden), state | new

    def flops_per_token(self, length: int, carried: bool) -> float:
        """The mean over tokens of source and target, both `length` long."""
        either = matrices(self.encoder) + matrices(self.decoder)  # each token of a pair meets one of the two
        attended = 0 if self.attention == "none" else 2 * length * self.dim
        return float(either + attended + matrices(self.bridge) / length)


def matrices(module: nn.Module) -> int:
    """Numbers in the matrices of a module."""
    return sum(weight.numel() for weight in module.parameters() if weight.dim() == 2)


class Encoder(nn.Module):
    """Recurrent layers in one direction or both, each direction with its share of `dim`."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float, directions: int) -> None:
        super().__init__()
        self.parts = parts_of(cell)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.ModuleList(CORES[cell](dim, dim // directions, batch_first=True) for _ in range(directions))
            for _ in range(num_layers)
        )

    def forward(
        self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B S D"], dict[str, Float[Tensor, "B L D"]]]:
        """Outputs of the last layer, zero at padding, and by part the last states."""
        time = torch.arange(x.shape[1], device=x.device)
        ends = torch.full((len(x),), x.shape[1], device=x.device) if lengths is None else lengths
        # Mirrors the real tokens of each lane and leaves its padding where it is, so that no lane is packed.
        mirror = torch.where(time < ends.unsqueeze(1), ends.unsqueeze(1) - 1 - time, time).unsqueeze(-1)
        last: list[tuple[Tensor, ...]] = []
        for layer, (forwards, *backwards) in enumerate(self.layers):  # type: ignore[misc]
            x = self.dropout(x) if layer else x
            out, state = self._run(forwards, x, lengths)
            for core in backwards:
                back, other = self._run(core, x.gather(1, mirror.expand_as(x)), lengths)
                out = torch.cat([out, back.gather(1, mirror.expand_as(back))], -1)
                state = tuple(torch.cat(both, -1) for both in zip(state, other, strict=True))
            x = out
            last.append(state)
        return x, {part: torch.stack(layers, 1) for part, *layers in zip(self.parts, *last, strict=True)}

    def _run(
        self, core: nn.RNNBase, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B S U"], tuple[Float[Tensor, "B U"], ...]]:
        """Outputs of one direction of a layer with U units, and its state at each lane's end."""
        like = next(core.parameters())
        state = {part: like.new_zeros(len(x), 1, core.hidden_size) for part in self.parts}

        def read(x: Float[Tensor, "b s D"], state: State) -> tuple[Float[Tensor, "b s U"], State]:
            out, after = run_fused(core, x, [state[part] for part in self.parts])
            return out, dict(zip(self.parts, after, strict=True))

        out, state = read(x, state) if lengths is None else read_by_length(read, x, state, lengths)
        return out, tuple(value.squeeze(1) for value in state.values())


def run_fused(
    core: nn.RNNBase, x: Float[Tensor, "B T D"], state: list[Float[Tensor, "B L U"]]
) -> tuple[Float[Tensor, "B T U"], list[Float[Tensor, "B L U"]]]:
    """All steps of x on torch's fused kernel of L layers of U units, with states in and out."""
    # torch keeps layers first.
    before = [value.transpose(0, 1).contiguous() for value in state]
    out, after = core(x, before[0] if len(before) == 1 else tuple(before))
    return out, [value.transpose(0, 1) for value in (after if isinstance(after, tuple) else (after,))]


def shares(scores: Float[Tensor, "B *T S"], state: State) -> Float[Tensor, "B *T S"]:
    """Softmax of scores (B, ..., S) over the real part of each source; zeros where that is empty."""
    source = torch.arange(scores.shape[-1], device=scores.device)
    padding = source >= state["source_filled"].view(-1, *[1] * (scores.dim() - 1))
    # The lowest finite number, since a row of infinities has no softmax.
    return scores.masked_fill(padding, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(padding, 0.0)


class LatentDecoder(nn.Module):
    """Plain recurrence: nothing but its first state tells of the source."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.parts = parts_of(cell)
        self.core = CORES[cell](dim, dim, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Embedded tokens to hidden states, and the carried parts after them."""
        return run_fused(self.core, x, [state[part] for part in self.parts])


class DotDecoder(nn.Module):
    """Recurrence first, then a look back: tanh(W [context; hidden]), where scores are products hidden^T W memory."""

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.recurrence = LatentDecoder(cell=cell, dim=dim, num_layers=num_layers, dropout=dropout)
        self.query = nn.Linear(dim, dim, bias=False)
        self.readout = nn.Linear(2 * dim, dim)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Embedded tokens to hidden states, and the carried parts after them."""
        hidden, after = self.recurrence(x, state)
        encoder_out = state["encoder_out"].to(hidden.dtype)
        weights = shares(self.query(hidden) @ encoder_out.transpose(1, 2), state)  # (B, T, S)
        record("cross", weights.unsqueeze(1))
        return self.readout(torch.cat([weights @ encoder_out, hidden], -1)).tanh(), after


class AdditiveDecoder(nn.Module):
    """A look back before each step, fed to the step: scores are v^T tanh(W state + U memory).

    What comes out is tanh of a map of state, context and embedded token (a maxout in the paper).
    """

    def __init__(self, *, cell: Cell, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.parts = parts_of(cell)
        self.cells = nn.ModuleList(STEPS[cell](dim if layer else 2 * dim, dim) for layer in range(num_layers))
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.score = nn.Parameter(torch.empty(dim).uniform_(-(dim**-0.5), dim**-0.5))
        self.readout = nn.Linear(3 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State
    ) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B L D"]]]:
        """Embedded tokens to hidden states, and the carried parts after them."""
        carried = [tuple(state[part][:, layer] for part in self.parts) for layer in range(len(self.cells))]
        seen, maps = [], []
        for token in x.unbind(1):
            weights = self._weights(carried[-1][0], state)
            context = torch.bmm(weights.unsqueeze(1), state["encoder_out"].to(weights.dtype)).squeeze(1)
            carried = self._step(torch.cat([token, context.to(token.dtype)], -1), carried)
            seen.append(torch.cat([carried[-1][0].to(token.dtype), context.to(token.dtype), token], -1))
            maps.append(weights)
        if active():
            record("cross", torch.stack(maps, 1).unsqueeze(1))
        after = [torch.stack([layer[part] for layer in carried], 1) for part in range(len(self.parts))]
        return self.readout(torch.stack(seen, 1)).tanh(), after

    def _weights(self, query: Float[Tensor, "B D"], state: State) -> Float[Tensor, "B S"]:
        """How one step, with the last state, shares itself out among the source."""
        scores = (self.query(query).unsqueeze(1) + state["keys"]).tanh() @ self.score
        return shares(scores, state)

    def _step(
        self, x: Float[Tensor, "B E"], carried: list[tuple[Float[Tensor, "B D"], ...]]
    ) -> list[tuple[Float[Tensor, "B D"], ...]]:
        """The layers' states after one more input."""
        after = []
        for layer, (cell, before) in enumerate(zip(self.cells, carried, strict=True)):
            out = cell(self.dropout(x) if layer else x, before[0] if len(self.parts) == 1 else before)
            after.append(out if isinstance(out, tuple) else (out,))
            x = after[-1][0]
        return after
