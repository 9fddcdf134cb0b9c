"""minGRU (Feng et al. 2024, arXiv 2410.01201): a gate that ignores the past, so that many steps run in parallel."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, read_by_length
from seqtrain.models.layers.scan import scan, steps_in_a_row


class MinGRU(SequenceModel):
    """Layers of h_t = (1 - z_t) h_{t-1} + z_t c_t, where z_t and c_t depend on x_t alone; each layer is residual."""

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.embed = embed
        self.dim = dim
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(num_layers + 1))
        self.gates = nn.ModuleList(nn.Linear(dim, 2 * dim) for _ in range(num_layers))
        self.dropout = nn.Dropout(dropout)

    def initial(self, batch: int) -> State:
        return {"hidden": self.norms[0].weight.new_zeros(batch, len(self.gates), self.dim)}  # type: ignore[operator]

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        starts: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        if state is None:
            state = self.initial(len(tokens))
        if starts is not None:
            return self._read(tokens, state, starts)
        return read_by_length(self._read, tokens, state, lengths)

    def read_documents(
        self, tokens: Shaped[Tensor, "B T *F"], state: State, starts: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T D"], State]:
        return self(tokens, state, starts=starts)

    def sequential_steps(self, length: int) -> int:
        return len(self.gates) * steps_in_a_row(length)

    def longest_path(self, length: int) -> int:
        return length + len(self.gates) - 1  # each step multiplies, even if many run in parallel

    def _read(
        self, tokens: Shaped[Tensor, "B T *F"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Read tokens without padding."""
        x = self.dropout(self.embed(tokens))
        after = []
        for layer, gates in enumerate(self.gates):
            gate, candidate = gates(self.norms[layer](x)).chunk(2, -1)
            update = gate.sigmoid()
            keep = 1 - update
            if starts is not None:
                keep = keep.masked_fill(starts.unsqueeze(-1), 0.0)
            hidden = scan(keep, update * candidate, state["hidden"][:, layer])
            after.append(hidden[:, -1])  # before the residual sum: the recurrence continues from it
            x = x + self.dropout(hidden)
        return self.norms[-1](x), {"hidden": torch.stack(after, 1).to(state["hidden"].dtype)}  # undo autocast
