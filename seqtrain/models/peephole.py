"""An LSTM whose gates look at the cell (Gers & Schmidhuber 2000, "Recurrent nets that time and count")."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, read_by_length


class PeepholeLSTM(SequenceModel):
    """LSTM layers without biases; input and forget gate see the cell before a step, the output gate the one after."""

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.embed = embed
        self.dim = dim
        self.inputs = nn.ModuleList(nn.Linear(dim, 4 * dim, bias=False) for _ in range(num_layers))
        self.recurrent = nn.ModuleList(nn.Linear(dim, 4 * dim, bias=False) for _ in range(num_layers))
        self.peepholes = nn.Parameter(torch.zeros(num_layers, 3, dim))  # of input, forget and output gate
        self.dropout = nn.Dropout(dropout)

    def initial(self, batch: int) -> State:
        num_layers, _, dim = self.peepholes.shape
        return {name: self.peepholes.new_zeros(batch, num_layers, dim) for name in ("hidden", "cell")}

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        state = self.initial(len(tokens)) if state is None else state
        return read_by_length(self._read, tokens, state, lengths)

    def flops_per_token(self, length: int, carried: bool) -> float:
        # By hand: torch's counter would take milliseconds for each token of a loop.
        return 2 * 8 * self.dim**2 * len(self.inputs)

    def _read(self, tokens: Shaped[Tensor, "B T *F"], state: State) -> tuple[Float[Tensor, "B T D"], State]:
        x = self.embed(tokens)
        hidden, cell = [], []
        for layer, inputs in enumerate(self.inputs):
            x, last_hidden, last_cell = self._read_layer(
                layer, inputs(self.dropout(x)), state["hidden"][:, layer], state["cell"][:, layer]
            )
            hidden.append(last_hidden)
            cell.append(last_cell)
        # The state keeps the weights' precision, also where autocast has computed in a lower one.
        after = {"hidden": torch.stack(hidden, 1), "cell": torch.stack(cell, 1)}
        return self.dropout(x), {name: value.to(state[name].dtype) for name, value in after.items()}

    def _read_layer(
        self, layer: int, given: Float[Tensor, "B T G"], hidden: Float[Tensor, "B D"], cell: Float[Tensor, "B D"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"], Float[Tensor, "B D"]]:
        """The outputs of one layer, its last one and its last cell; `given` is what the inputs add to the gates."""
        at_input, at_forget, at_output = self.peepholes[layer]
        outputs = []
        for step in given.unbind(1):
            enter, forget, out, value = (step + self.recurrent[layer](hidden)).chunk(4, -1)
            kept = (forget + at_forget * cell).sigmoid() * cell
            cell = kept + (enter + at_input * cell).sigmoid() * value.tanh()
            hidden = (out + at_output * cell).sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs, 1), hidden, cell
