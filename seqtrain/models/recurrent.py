"""Recurrent networks: Elman RNN (Elman 1990), GRU (Cho et al. 2014), LSTM (Hochreiter & Schmidhuber 1997)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, read_by_length


class Recurrent(SequenceModel):
    """A stack of recurrent layers on torch's fused kernels; each direction has `dim` units, or half of them each."""

    parts: ClassVar[tuple[str, ...]]  # names of the tensors that a layer carries

    def __init__(self, *, embed: nn.Module, dim: int, num_layers: int, dropout: float, bidirectional: bool) -> None:
        super().__init__()
        if bidirectional and dim % 2:
            raise ValueError(f"dim={dim} must be even: each direction has half of it")
        self.embed = embed
        self.dim = dim
        self.num_layers = num_layers
        self.bidirectional = bidirectional
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

    @abstractmethod
    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        """torch's module for this kind of recurrence, batch first."""

    def initial(self, batch: int) -> State:
        if self.bidirectional:
            return {}
        like = next(self.layer.parameters())
        return {name: like.new_zeros(batch, self.num_layers, self.dim) for name in self.parts}

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        if self.bidirectional:
            return self._both_ways(tokens, lengths), {}
        state = self.initial(len(tokens)) if state is None else state
        if lengths is None:
            return self._read(tokens, state)
        return read_by_length(self._read, tokens, state, lengths)

    def _read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        x = self.dropout(self.embed(tokens))
        # torch keeps layers first; (B, L, H) to (L, B, H) costs nothing measurable.
        carried = [state[name].transpose(0, 1).contiguous() for name in self.parts]
        hidden, after = self.layer(x, tuple(carried) if len(carried) > 1 else carried[0])
        after = after if isinstance(after, tuple) else (after,)
        new = {name: value.transpose(0, 1).to(state[name].dtype) for name, value in zip(self.parts, after, strict=True)}
        return self.dropout(hidden), new

    def _both_ways(self, tokens: Tensor, lengths: Tensor | None) -> Tensor:
        x = self.dropout(self.embed(tokens))
        time = torch.arange(x.shape[1], device=x.device)
        ends = lengths if lengths is not None else torch.full((len(x),), x.shape[1], device=x.device)
        # Mirrors the real tokens of each lane and leaves its padding where it is, so that no lane is packed.
        mirror = torch.where(time < ends.unsqueeze(1), ends.unsqueeze(1) - 1 - time, time).unsqueeze(-1)
        for forwards, backwards in self.layers:  # type: ignore[misc]
            there = forwards(x)[0]
            back = backwards(x.gather(1, mirror.expand_as(x)))[0]
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
    ) -> None:
        self.activation = activation
        super().__init__(embed=embed, dim=dim, num_layers=num_layers, dropout=dropout, bidirectional=bidirectional)

    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        return nn.RNN(width, units, num_layers, nonlinearity=self.activation, batch_first=True, dropout=dropout)


class GRU(Recurrent):
    """Gated recurrent unit: an update and a reset gate."""

    parts = ("hidden",)

    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        return nn.GRU(width, units, num_layers, batch_first=True, dropout=dropout)


class LSTM(Recurrent):
    """Long short-term memory: input, forget and output gates around a cell."""

    parts = ("hidden", "cell")

    def core(self, width: int, units: int, num_layers: int, dropout: float) -> nn.RNNBase:
        return nn.LSTM(width, units, num_layers, batch_first=True, dropout=dropout)
