"""Options that no target takes: of the command, the trainer and the layout of a stream; conf/ holds their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqtrain.faults import Fault


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The top level of conf/train.yaml, beside its groups."""

    seed: int
    run_dir: str | None  # None: a new folder below outputs/
    dry_run: bool

    def __post_init__(self) -> None:
        lines = []
        if not 0 <= self.seed < 2**32:
            lines.append(f"seed={self.seed}: expected a whole number from 0 to {2**32 - 1}")
        if self.run_dir == "":
            lines.append("run_dir=: an empty path; name a folder, or null for a new one below outputs/")
        _refuse(lines)


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    """The group `trainer`."""

    accelerator: Literal["auto", "cpu", "gpu"]
    devices: int
    num_nodes: int
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"]
    threads: int | None  # None: as many as cores
    max_steps: int | None  # optimiser steps; None: max_epochs decides
    max_epochs: int | None
    accumulate: int  # micro-batches a step: slices of the lanes
    clip: float | None  # largest norm of the gradient
    validate_every: int  # steps
    checkpoint_every: int  # steps
    log_every: int  # steps

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in vars(self).items() if not isinstance(value, str)}
        lines = _not_positive("trainer", numbers)
        if self.max_steps is None and self.max_epochs is None:
            lines.append(
                "trainer.max_steps=null: training would never end; set trainer.max_steps or trainer.max_epochs"
            )
        _refuse(lines)


@dataclass(frozen=True, kw_only=True)
class Batching:
    """The part of the group `data` that no source takes: how the stream is laid out."""

    lanes: int  # B of training
    eval_lanes: int  # B of evaluation: context policy
    eval_batch_size: int | None  # lanes at a time in evaluation; None: all

    def __post_init__(self) -> None:
        _refuse(_not_positive("data", vars(self)))


def _not_positive(group: str, numbers: dict[str, float | None]) -> list[str]:
    """A line for each number that is not above 0; the comparison is turned round so that nan is refused too."""
    return [
        f"{group}.{name}={value}: expected a number above 0"
        for name, value in numbers.items()
        if value is not None and not value > 0
    ]


def _refuse(lines: list[str]) -> None:
    if lines:
        raise Fault(*lines)
