"""Recurrent networks: Elman RNN (Elman 1990), GRU (Cho et al. 2014), LSTM (Hochreiter & Schmidhuber 1997).

With `learned_state` reading begins from a trained state instead of zeros. A state of zeros still means that nothing was
read: it counts the tokens read, `filled`, and the trained state stands in wherever that count is 0. So a lane that is
reset begins there again, and a lane that goes on sends no gradient to where it began in an earlier chunk.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import product
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, read_by_length


class Recurrent(SequenceModel):
    """A stack of recurrent layers on torch's fused kernels; each direction has `dim` units, or half of them each."""

    parts: ClassVar[tuple[str, ...]]  # names of the tensors that a layer carries

    def __init__(
        self,
        *,
        embed: nn.Module,
        dim: int,
        num_layers: int,
        dropout: float,
        bidirectional: bool,
        bias: bool = True,
        learned_state: bool = False,
    ) -> None:
        super().__init__()
        if bidirectional and dim % 2:
            raise ValueError(f"dim={dim} must be even: each direction has half of it")
        self.embed = embed
        self.dim = dim
        self.num_layers = num_layers
        self.bidirectional = bidirectional
        self.bias = bias
        self.capabilities = (
            Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL
            if bidirectional
            else Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL
        )
        self.dropout = nn.Dropout(dropout)
        between = dropout if num_layers > 1 else 0.0
        if bidirectional:
            pairs = (nn.ModuleList(self.core(dim, dim // 2, 1, 0.0) for _ in range(2)) for _ in range(num_layers))
            self.layers = nn.ModuleList(pairs)
        else:
            self.layer = self.core(dim, dim, num_layers, between)
        self.first = self._first_states() if learned_state else None

    @abstractmethod
    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        """torch's module for this kind of recurrence, batch first."""

    def _first_states(self) -> nn.ParameterDict:
        """A vector for each part of each layer and direction, under the names that torch gives their weights."""
        units = self.dim // 2 if self.bidirectional else self.dim
        directions = ("", "_reverse") if self.bidirectional else ("",)
        names = product(self.parts, range(self.num_layers), directions)
        # Vectors, one by one, because optimizers take a matrix for a map between layers.
        return nn.ParameterDict({f"{part}_l{layer}{way}": torch.zeros(units) for part, layer, way in names})

    def initial(self, batch: int) -> State:
        if self.bidirectional:
            return {}
        like = next(self.layer.parameters())
        state = {name: like.new_zeros(batch, self.num_layers, self.dim) for name in self.parts}
        if self.first is not None:
            state["filled"] = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        if self.bidirectional:
            return self._both_ways(tokens, lengths), {}
        state = self.initial(len(tokens)) if state is None else state
        if lengths is None:
            return self._read(tokens, state)
        return read_by_length(self._read, tokens, state, lengths)

    def _read(self, tokens: Int[Tensor, "B T"], state: State) -> tuple[Float[Tensor, "B T D"], State]:
        x = self.dropout(self.embed(tokens))
        # torch keeps layers first; (B, L, H) to (L, B, H) costs nothing measurable.
        carried = [self._before(name, state).transpose(0, 1).contiguous() for name in self.parts]
        hidden, after = self.layer(x, tuple(carried) if len(carried) > 1 else carried[0])
        after = after if isinstance(after, tuple) else (after,)
        new = {name: value.transpose(0, 1).to(state[name].dtype) for name, value in zip(self.parts, after, strict=True)}
        if self.first is not None:
            new["filled"] = state["filled"] + tokens.shape[1]
        return self.dropout(hidden), new

    def _before(self, part: str, state: State) -> Float[Tensor, "B L D"]:
        """What each lane goes on from (B, L, D): its state, or the trained one where nothing was read."""
        if self.first is None:
            return state[part]
        first = torch.stack([self.first[f"{part}_l{layer}"] for layer in range(self.num_layers)])
        return torch.where(state["filled"].view(-1, 1, 1) == 0, first, state[part])

    def _beginning(
        self, layer: int, way: str, batch: int
    ) -> tuple[Float[Tensor, "1 B U"], ...] | Float[Tensor, "1 B U"] | None:
        """Where one direction of a layer begins, as torch takes it; None for zeros."""
        if self.first is None:
            return None
        found = [self.first[f"{part}_l{layer}{way}"].expand(1, batch, -1).contiguous() for part in self.parts]
        return tuple(found) if len(found) > 1 else found[0]

    def _both_ways(self, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B T D"]:
        x = self.dropout(self.embed(tokens))
        time = torch.arange(x.shape[1], device=x.device)
        ends = lengths if lengths is not None else torch.full((len(x),), x.shape[1], device=x.device)
        # Mirrors the real tokens of each lane and leaves its padding where it is, so that no lane is packed.
        mirror = torch.where(time < ends.unsqueeze(1), ends.unsqueeze(1) - 1 - time, time).unsqueeze(-1)
        for layer, (forwards, backwards) in enumerate(self.layers):  # type: ignore[misc,arg-type]
            there = forwards(x, self._beginning(layer, "", len(x)))[0]
            back = backwards(x.gather(1, mirror.expand_as(x)), self._beginning(layer, "_reverse", len(x)))[0]
            x = self.dropout(torch.cat([there, back.gather(1, mirror.expand_as(back))], -1))
        return x

    def flops_per_token(self, length: int, carried: bool) -> float:
        return super().flops_per_token(1, carried)  # each token costs the same; torch counts step by step


class RNN(Recurrent):
    """Elman network: h_t = act(W x_t + U h_{t-1} + b)."""

    parts = ("hidden",)

    def __init__(
        self,
        *,
        embed: nn.Module,
        dim: int,
        num_layers: int,
        dropout: float,
        bidirectional: bool,
        activation: Literal["tanh", "relu"],
        bias: bool = True,
        learned_state: bool = False,
    ) -> None:
        self.activation = activation
        super().__init__(
            embed=embed,
            dim=dim,
            num_layers=num_layers,
            dropout=dropout,
            bidirectional=bidirectional,
            bias=bias,
            learned_state=learned_state,
        )

    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        kind = self.activation
        return nn.RNN(width, units, num_layers, kind, bias=self.bias, batch_first=True, dropout=dropout)


class GRU(Recurrent):
    """Gated recurrent unit: an update and a reset gate."""

    parts = ("hidden",)

    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        return nn.GRU(width, units, num_layers, bias=self.bias, batch_first=True, dropout=dropout)


class LSTM(Recurrent):
    """Long short-term memory: input, forget and output gates around a cell."""

    parts = ("hidden", "cell")

    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        return nn.LSTM(width, units, num_layers, bias=self.bias, batch_first=True, dropout=dropout)
