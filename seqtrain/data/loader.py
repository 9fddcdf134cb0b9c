"""The one loader of training: a plan says what each optimiser step reads, a cutter makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from seqtrain.data.plan import deal


class Piece(Protocol):
    """What one optimiser step reads."""

    @property
    def lanes(self) -> int: ...


class Plan(Protocol):
    """What every plan of batches says: of lanes that stand side by side, or of examples."""

    steps: int  # optimiser steps in an epoch
    num_tokens: int  # in an epoch
    padding: float  # share of the positions that hold no token

    def chunk(self, epoch: int, step: int) -> Any: ...

    def tokens_before(self, step: int) -> int: ...


class Cutter(Protocol):
    """Makes the share of a piece that belongs to some of its lanes, or examples."""

    def batch(self, piece: Any, share: slice, /) -> Any: ...


class TrainLoader:
    """Micro-batches from optimiser step `first_step` on, epoch after epoch, without end."""

    def __init__(self, cutter: Cutter, plan: Plan, *, accumulate: int, first_step: int = 0) -> None:
        self.cutter = cutter
        self.plan = plan
        self.accumulate = accumulate
        self.first_step = first_step

    def __iter__(self) -> Iterator[Any]:
        step = self.first_step
        while True:
            piece = self.plan.chunk(*divmod(step, self.plan.steps))
            for micro in range(self.accumulate):
                yield self.cutter.batch(piece, deal(piece.lanes, self.accumulate, micro))
            step += 1

    def __len__(self) -> int:
        """To Lightning the whole training is one endless epoch: none of its epoch ends falls between our steps."""
        return 2**40
