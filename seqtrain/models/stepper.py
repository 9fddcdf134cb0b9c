"""Continuing from a state token by token for decoding: without gradients and with little copying."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

State = dict[str, Tensor]
"""State after earlier tokens: a flat dict of batch-first tensors; all zeros means that nothing was read."""


class Stepper(ABC):
    """Reads one token at a time for each row. A row is one of the W continuations of a lane, in order of lanes."""

    @abstractmethod
    def read(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """Read one more token for each row and return the hidden states after it."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, "B W"]) -> None:
        """Keep W continuations of each of B lanes.

        Args:
            rows: for each continuation, the row that it continues; all W rows belong to one lane. A lane may be left
            out; the others stay in order.
        """


class StateStepper(Stepper):
    """A stepper for any model with state. It calls the model's forward pass and keeps the returned state.

    Args:
        forward: the model, or a function with the same arguments and results.
        state: the start state; it is not modified.
    """

    def __init__(
        self,
        forward: Callable[[Int[Tensor, "N T"], State], tuple[Float[Tensor, "N T D"], State]],
        state: State,
    ) -> None:
        self.forward = forward
        self.state = state

    def read(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        hidden, self.state = self.forward(tokens.unsqueeze(1), self.state)
        return hidden[:, -1]

    def keep(self, rows: Int[Tensor, "B W"]) -> None:
        self.state = {name: value.index_select(0, rows.flatten()) for name, value in self.state.items()}


def fold(x: Float[Tensor, "N H R K"], lanes: int) -> Float[Tensor, "{lanes} H W K"]:
    """Arrange the rows of a lane, with R queries each, as positions of one sequence: they attend to the same keys."""
    return x.unflatten(0, (lanes, -1)).transpose(1, 2).flatten(2, 3)


def unfold(x: Float[Tensor, "B H W K"], count: int) -> Float[Tensor, "N H {count} K"]:
    """Invert `fold` for rows with `count` queries each."""
    return x.unflatten(2, (-1, count)).transpose(1, 2).flatten(0, 1)
