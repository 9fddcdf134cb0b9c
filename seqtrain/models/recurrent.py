"""Recurrent networks: Elman RNN (Elman 1990), GRU (Cho et al. 2014), LSTM (Hochreiter & Schmidhuber 1997).

With `learned_state`, reading begins from a trained state instead of zeros. A state of zeros still means that nothing
was read: the state counts the tokens read in `filled`, and the trained state replaces the zeros wherever that count is
0. So a lane that is reset begins from the trained state again, and a lane that continues sends no gradient to the start
state of an earlier chunk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, Weights, read_by_length
from seqtrain.models.layers.blocks import in_depth
from seqtrain.models.layers.recurrence import layers_of, mirror_index, pack_state, reverse, run_layers
from seqtrain.models.layers.side_by_side import side_by_side


class Recurrent(SequenceModel):
    """A stack of recurrent layers on torch's fused kernels; `dim` units, or half as many in each of two directions.

    With `share_layers` all layers use the same weights, and each has its own state.
    """

    state_names: ClassVar[tuple[str, ...]]  # the tensors that a layer carries, in torch's order

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
        share_layers: bool = False,
    ) -> None:
        super().__init__()
        if bidirectional and dim % 2:
            raise ValueError(f"dim={dim} must be even: each direction gets half of it")
        self.embed = embed
        self.dim = dim
        self.num_layers = num_layers
        self.bidirectional = bidirectional
        self.bias = bias
        self.dropout = nn.Dropout(dropout)
        if bidirectional:
            self.capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL
            # One module per layer and direction: torch's own bidirectional module requires packed sequences for
            # padding.
            self.layers = in_depth(
                lambda _: nn.ModuleList(self.core(dim // 2, 1, 0.0) for _ in range(2)), num_layers, share_layers
            )
        else:
            self.capabilities = (
                Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL
            )
            self.layer = layers_of(
                lambda count, between: self.core(dim, count, between), num_layers, dropout, share_layers
            )
        self.first = self._first_states() if learned_state else None

    @abstractmethod
    def core(self, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        """Create torch's module for this kind of recurrence, batch first, from `dim` inputs to `units` outputs."""

    def _first_states(self) -> nn.ParameterDict:
        """Create a zero vector for each state tensor of each layer and direction, named as torch names weights."""
        units, directions = self.dim, [""]
        if self.bidirectional:
            units, directions = self.dim // 2, ["", "_reverse"]
        first = {}
        for name, layer, direction in product(self.state_names, range(self.num_layers), directions):
            # One vector per layer, because optimizers treat a matrix as a map between layers.
            first[f"{name}_l{layer}{direction}"] = torch.zeros(units)
        return nn.ParameterDict(first)

    def initial(self, batch: int) -> State:
        if self.bidirectional:
            return {}
        like = next(self.layer.parameters())
        state = {name: like.new_zeros(batch, self.num_layers, self.dim) for name in self.state_names}
        if self.first is not None:
            state["filled"] = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        if self.bidirectional:
            return self._both_ways(tokens, lengths), {}
        if state is None:
            state = self.initial(len(tokens))
        return read_by_length(self._read, tokens, state, lengths)

    def _read(self, tokens: Shaped[Tensor, "B T *F"], state: State) -> tuple[Float[Tensor, "B T D"], State]:
        """Read tokens without padding, in one direction."""
        x = self.dropout(self.embed(tokens))
        first = [self._begin_from(name, state) for name in self.state_names]
        hidden, after = run_layers(self.layer, x, first, self.dropout)
        new: State = {}
        for name, value in zip(self.state_names, after, strict=True):
            new[name] = value.to(state[name].dtype)  # under autocast the kernel may give a lower precision
        if self.first is not None:
            new["filled"] = state["filled"] + tokens.shape[1]
        return self.dropout(hidden), new

    def _begin_from(self, name: str, state: State) -> Float[Tensor, "B L D"]:
        """Return the start state of each lane: its state, or the trained one if nothing was read."""
        if self.first is None:
            return state[name]
        first = torch.stack([self.first[f"{name}_l{layer}"] for layer in range(self.num_layers)])
        return torch.where(state["filled"].view(-1, 1, 1) == 0, first, state[name])

    def _trained_state(
        self, layer: int, direction: str, batch: int
    ) -> tuple[Float[Tensor, "1 B U"], ...] | Float[Tensor, "1 B U"] | None:
        """Return the trained start state of one direction of a layer, in torch's format; None for zeros."""
        if self.first is None:
            return None
        vectors = [self.first[f"{name}_l{layer}{direction}"] for name in self.state_names]
        return pack_state([vector.expand(1, batch, -1).contiguous() for vector in vectors])

    def _both_ways(self, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B T D"]:
        """Read each lane forwards from its first token and backwards from its last real token."""
        x = self.dropout(self.embed(tokens))
        mirror = mirror_index(x, lengths)
        for layer, (forwards, backwards) in enumerate(self.layers):  # type: ignore[misc,arg-type]
            there = forwards(x, self._trained_state(layer, "", len(x)))[0]
            back = backwards(reverse(x, mirror), self._trained_state(layer, "_reverse", len(x)))[0]
            # The backward direction is reversed again, so that both directions refer to the same position.
            x = self.dropout(torch.cat([there, reverse(back, mirror)], -1))
        return x

    def from_directions(self, forwards: Weights, backwards: Weights) -> Weights:
        separator: int = self.embed.separator  # type: ignore[assignment]

        def name_of(direction: int, layer: int, kind: str) -> str:
            return f"layers.{layer}.{direction}.{kind}_l0"

        return side_by_side(self.state_dict(), (forwards, backwards), separator=separator, name_of=name_of)

    @property
    def config_name(self) -> str:
        # Three models are in this module.
        kind = type(self)
        return kind.__name__.lower() if kind.__module__ == __name__ else kind.__name__

    def sequential_steps(self, length: int) -> int:
        if self.bidirectional:  # the first token of a layer waits for the layer below to read back to it
            return length * self.num_layers
        return length + self.num_layers - 1  # a layer starts on a token once the layer below has finished it

    def longest_path(self, length: int) -> int:
        return length + self.num_layers - 1

    def flops_per_token(self, length: int, carried: bool) -> float:
        return super().flops_per_token(1, carried)  # each token costs the same, and torch counts step by step


class RNN(Recurrent):
    """Elman network: h_t = act(W x_t + U h_{t-1} + b)."""

    state_names = ("hidden",)

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
        share_layers: bool = False,
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
            share_layers=share_layers,
        )

    def core(self, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        kind = self.activation
        return nn.RNN(self.dim, units, num_layers, kind, bias=self.bias, batch_first=True, dropout=dropout)


class GRU(Recurrent):
    """Gated recurrent unit: an update and a reset gate."""

    state_names = ("hidden",)

    def core(self, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        return nn.GRU(self.dim, units, num_layers, bias=self.bias, batch_first=True, dropout=dropout)


class LSTM(Recurrent):
    """Long short-term memory: input, forget and output gates around a cell."""

    state_names = ("hidden", "cell")

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
        share_layers: bool = False,
        forget_bias: float = 0.0,
    ) -> None:
        """Build the model.

        `forget_bias` is added to the initial biases of the forget gates: with 1 or 2, cells keep their content from the
        first step on (Jozefowicz et al. 2015).
        """
        self.forget_bias = forget_bias
        super().__init__(
            embed=embed,
            dim=dim,
            num_layers=num_layers,
            dropout=dropout,
            bidirectional=bidirectional,
            bias=bias,
            learned_state=learned_state,
            share_layers=share_layers,
        )

    @classmethod
    def idle(cls, options: Mapping[str, Any]) -> dict[str, str]:
        if options.get("bias") is False:
            return {"forget_bias": "with bias=false the gates have no bias"}
        return {}

    def core(self, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        core = nn.LSTM(self.dim, units, num_layers, bias=self.bias, batch_first=True, dropout=dropout)
        if self.bias and self.forget_bias:
            with torch.no_grad():
                for layer in range(num_layers):
                    # torch adds two biases, and orders its gates input, forget, cell, output.
                    getattr(core, f"bias_ih_l{layer}")[units : 2 * units] += self.forget_bias
        return core
