"""A model that goes on from a state token by token, as decoding needs it: without gradients, with little copying."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from jaxtyping import Float, Int
from torch import Tensor

State = dict[str, Tensor]
"""What earlier tokens left: a flat dict, every tensor batch-first, all zeros = nothing read yet."""


class Stepper(ABC):
    """Reads a token at a time for each row, which is one of the W continuations of a lane; rows lie lane by lane."""

    @abstractmethod
    def read(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """The hidden state after one more token of each row."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, "B W"]) -> None:
        """Goes on with W continuations of each of B lanes.

        Args:
            rows: those of before that each goes on from, all of the same lane; a lane may be left out, and the others
                stay in order.
        """


class StateStepper(Stepper):
    """Of any model with state: its own forward pass, and the state that it gives.

    Args:
        forward: of the model.
        state: to go on from; it stays as it is.
        shared: names of what is said of a lane, and does not change: rows of one lane share it.
    """

    def __init__(
        self,
        forward: Callable[[Int[Tensor, "N T"], State], tuple[Float[Tensor, "N T D"], State]],
        state: State,
        shared: Collection[str] = (),
    ) -> None:
        self.forward = forward
        self.state = state
        self.shared = shared
        self.width = 1  # rows of each lane

    def read(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        hidden, self.state = self.forward(tokens.unsqueeze(1), self.state)
        return hidden[:, -1]

    def keep(self, rows: Int[Tensor, "B W"]) -> None:
        lanes = rows[:, 0] // self.width
        flat, after = rows.flatten(), {}
        for name, value in self.state.items():
            if name not in self.shared:
                after[name] = value.index_select(0, flat)
            # Lanes stay in order, so as many as before are all of them.
            elif len(lanes) == len(value):
                after[name] = value
            else:
                after[name] = value.index_select(0, lanes)
        self.state = after
        self.width = rows.shape[1]


def fold(x: Float[Tensor, "N H 1 K"], lanes: int) -> Float[Tensor, "{lanes} H W K"]:
    """Rows of a lane as if they were positions of one sequence: they look at the same keys."""
    rows, heads, _, width = x.shape
    return x.view(lanes, rows // lanes, heads, width).transpose(1, 2)


def unfold(x: Float[Tensor, "B H W K"]) -> Float[Tensor, "B*W H 1 K"]:
    """The inverse of `fold`."""
    return x.transpose(1, 2).flatten(0, 1).unsqueeze(2)
