"""Recurrences of single numbers, read by a scan: minGRU and minLSTM (Feng et al. 2024), RG-LRU (De et al. 2024)."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.layers.scan import scan, steps_in_a_row
from seqtrain.models.mixers.base import Mixer, ShortConvolution, exact
from seqtrain.models.stepper import State

Gates = Literal["min_gru", "min_lstm", "rg_lru"]
POWER = 8.0  # c of RG-LRU: scale of the logarithm of its decay


class Scan(Mixer):
    """h_t = keep_t h_{t-1} + add_t for each channel; `gates` selects how the input determines keep and add.

    - min_gru: 1 - z, z c, with z = sigmoid(.) (arXiv 2410.01201).
    - min_lstm: f / (f + i), i c / (f + i), with f and i = sigmoid(.) (the same).
    - rg_lru: a = e^{-8 softplus(rate) sigmoid(.)}, sqrt(1 - a^2) sigmoid(.) c (arXiv 2402.19427).
    """

    def __init__(self, *, dim: int, gates: Gates, conv: int = 0) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            gates: Kind of recurrence.
            conv: Width of a short convolution of the input, in tokens; 0 for none.
        """
        super().__init__()
        self.kind = gates
        self.conv = ShortConvolution(dim, conv)
        self.wide = nn.Linear(dim, (2 if gates == "min_gru" else 3) * dim)
        self.out = nn.Linear(dim, dim, bias=False)
        if gates == "rg_lru":
            # So that a^8 with an open gate is uniform from .9 to .999: states of ten to a thousand tokens.
            kept = torch.empty(dim).uniform_(0.9, 0.999)
            self.rate = nn.Parameter(torch.log(torch.expm1(-kept.log() / POWER)))

    def initial(self, batch: int) -> State:
        return {"hidden": self.out.weight.new_zeros(batch, self.out.in_features), **self.conv.initial(batch)}

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        x, after = self.conv(x, state, starts)
        keep, add = self._steps(exact(self.wide(x)))
        if starts is not None:
            keep = keep.masked_fill(starts.unsqueeze(-1), 0.0)
        hidden = scan(keep, add, state["hidden"])
        return self.out(hidden.to(x.dtype)), {"hidden": hidden[:, -1].to(state["hidden"].dtype), **after}

    def steps(self, length: int) -> int:
        return steps_in_a_row(length)

    def _steps(self, wide: Float[Tensor, "B T E"]) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """Return the share of the state that each step keeps, and what it adds."""
        if self.kind == "min_gru":
            gate, candidate = wide.chunk(2, -1)
            update = gate.sigmoid()
            return 1 - update, update * candidate
        first, second, candidate = wide.chunk(3, -1)
        if self.kind == "min_lstm":
            # f / (f + i) as the sigmoid of a difference: both may be too small to be divided.
            keep = (F.logsigmoid(first) - F.logsigmoid(second)).sigmoid()
            return keep, (1 - keep) * candidate
        log_keep = -POWER * F.softplus(self.rate) * first.sigmoid()
        # Without decay the root's gradient would be infinite.
        share = torch.sqrt((-torch.expm1(2 * log_keep)).clamp(min=1e-12))
        return log_keep.exp(), share * second.sigmoid() * candidate
