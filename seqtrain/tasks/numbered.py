"""The scale and the head of tasks whose answers are numbers."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from seqtrain.data.preprocess import Preprocessor, Scale
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.tasks.base import ExampleTask

UNSCALED = Scale(mean=0.0, std=1.0)  # for compatibility checks before the data is read


class NumberTask(ExampleTask):
    """A task whose answers are numbers, from a head that is linear in a hidden state.

    The model learns numbers scaled to mean 0 and standard deviation 1 in train. Answers and all metrics except the loss
    have the unit of the data. Predicting the mean of train gives a loss of 1.
    """

    requires = Capability.UNCONDITIONAL
    fields = ("text", "label")
    value_fields = ("values", "label")  # if the data contains series
    monitor = "mse"

    def __init__(self, *, dropout: float, dim: int, preprocessor: Preprocessor | None = None) -> None:
        super().__init__()
        self.dim = dim
        # Not a weight, so that a run initialised from another run's head keeps its own unit.
        self.scale = UNSCALED
        if preprocessor is not None and preprocessor.scale is not None:
            self.scale = preprocessor.scale
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, 1)

    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... 1"]:
        """Return the scaled number of each hidden state."""
        return self.head(self.dropout(hidden))

    def numbers(self, scaled: Float[Tensor, " *n"]) -> Float[Tensor, " *n"]:
        """Convert scaled numbers to the unit of the data."""
        return scaled.double() * self.scale.std + self.scale.mean

    def wanted(self, numbers: Float[Tensor, " *n"]) -> Float[Tensor, " *n"]:
        """Convert numbers of the data to scaled ones, in float64: float32 would lose differences of large numbers."""
        return (numbers.double() - self.scale.mean) / self.scale.std

    def head_flops(self) -> float:
        return 2.0 * self.dim
