"""The classical recurrences as mixers, on torch's fused kernels: Elman's, GRU and LSTM."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqtrain.models.base import read_rows
from seqtrain.models.layers.recurrence import CORES, STATE_NAMES, Cell, run_fused
from seqtrain.models.mixers.base import Mixer, ShortConvolution
from seqtrain.models.stepper import State


class Recurrent(Mixer):
    """One layer of a recurrence, and a map back to the stream."""

    def __init__(self, *, dim: int, cell: Cell, conv: int = 0, units: int | None = None) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            cell: Kind of recurrence: rnn (tanh), gru or lstm.
            conv: Width of a short convolution of the input, in tokens; 0 for none.
            units: Number of hidden units. None: D.
        """
        super().__init__()
        units = dim if units is None else units
        self.conv = ShortConvolution(dim, conv)
        self.state_names = STATE_NAMES[cell]
        self.core = CORES[cell](dim, units, batch_first=True)
        self.out = nn.Linear(units, dim, bias=False)

    def initial(self, batch: int) -> State:
        like = self.out.weight
        state = {name: like.new_zeros(batch, self.core.hidden_size) for name in self.state_names}
        return {**state, **self.conv.initial(batch)}

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        x, after = self.conv(x, state, starts)
        own = {name: state[name] for name in self.state_names}
        hidden, new = self._run(x, own) if starts is None else read_rows(self._run, x, own, starts)
        return self.out(hidden), new | after

    def _run(self, x: Float[Tensor, "B T D"], state: State) -> tuple[Float[Tensor, "B T U"], State]:
        """Run the recurrence."""
        hidden, after = run_fused(self.core, x, [value.unsqueeze(1) for value in state.values()])
        return hidden, {name: new.squeeze(1).to(state[name].dtype) for name, new in zip(state, after, strict=True)}
