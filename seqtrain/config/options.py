"""Options that no target takes: of the command, the trainer and the layout of a stream; conf/ holds their defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seqtrain.config.ranges import RANGES
from seqtrain.errors import UserError

BUDGETS = ("params", "state", "flops", "seconds")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The top level of conf/train.yaml, beside its groups."""

    seed: int
    run_dir: str | None  # None: a new folder below outputs/
    dry_run: bool
    init_from: str | list[str] | None  # a run whose weights and tokenizers are the beginning; or one a direction
    freeze: list[str]  # parts of the model that stay as they are
    # Four things make the learning rate, and they are multiplied: optimizer.lr (of Muon also lr_rest) is what a
    # parameter begins with, layer_decay scales it by depth, the schedule by the step, tbptt.jitter by the length of
    # the chunk.
    layer_decay: float  # factor of the learning rate from each layer to the one below it
    budget: str | list[str] | None  # what the run may cost: see `read_budget`

    def __post_init__(self) -> None:
        lines = []
        lines += _faults_of_origins(self.init_from)
        if self.run_dir == "":
            lines.append("run_dir=: an empty path; name a folder, or null for a new one below outputs/")
        try:
            read_budget(self.budget)
        except UserError as fault:
            lines += fault.lines
        if lines:
            raise UserError(*lines)


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The group `run`: a user's labels of a run; they change no number."""

    label: str | None  # `seqtrain compare --by label` sets runs apart by it
    tags: list[str]


@dataclass(frozen=True, kw_only=True)
class AdapterOptions:
    """The group `adapter`: changes of low rank that the maps of a trained model learn."""

    rank: int
    alpha: float  # a change is scaled by alpha / rank
    targets: list[str]  # parts of the model whose maps learn one
    train: list[str]  # parts that are trained as a whole


@dataclass(frozen=True, kw_only=True)
class FrontEndOptions:
    """The part of the group `model` that no model takes: the front end that it is given."""

    embed_dim: int | None = None  # width of the vectors of tokens, before a map to that of the model; None: no map


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    """The group `trainer`."""

    accelerator: Literal["auto", "cpu", "gpu"]
    devices: int | Literal["all"]  # processes on each node: one a GPU, or, on the CPU, as many as are wanted
    num_nodes: int
    strategy: Literal["auto", "ddp", "fsdp"]  # auto: ddp where there are several processes
    check_ranks_every: int  # steps between checks that all processes hold the same weights and gradients
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"]
    compile: Literal["none", "blocks"]  # what torch compiles of the model, for training alone
    deterministic: bool  # on a GPU the same bits each time, by kernels that add in one order; slower
    threads: int | None  # None: as many as cores
    max_steps: int | Literal["auto"] | None  # optimiser steps; None: max_epochs decides; auto: the size of the data
    max_epochs: int | None
    max_seconds: float | None  # of training, validations apart
    accumulate: int  # micro-batches a step: slices of the lanes
    grad_clip: float | None  # largest norm of the gradient
    validate_every: int | Literal["auto"]  # steps; auto: ten times in a training
    checkpoint_every: int | Literal["auto"]  # steps; auto: 200, or more where saving takes long
    keep_last: int  # newest checkpoints that stay
    keep_best: int  # checkpoints that stay because they are the best by the task's own measure
    on_nonfinite: Literal["stop", "skip"]  # a loss or gradient that is no number
    log_every: int  # steps
    # Options with a default came later: runs of before do not name them.
    profile: Literal["none", "steps"] = "none"  # steps: seconds of some steps by part, and a trace
    recompute: Literal["none", "blocks"] = "none"  # what is computed again for the backward pass, to save memory
    eval_precision: Literal["full", "training"] = "full"  # of validations and `evaluate`

    def __post_init__(self) -> None:
        if self.max_steps is None and self.max_epochs is None and self.max_seconds is None:
            raise UserError(
                "trainer.max_steps=null: training would never end; set trainer.max_steps, trainer.max_epochs or "
                "trainer.max_seconds"
            )


DEFAULT_LANES = 32  # of a stream, where data.batch_size says nothing


@dataclass(frozen=True, kw_only=True)
class Batching:
    """The part of the group `data` that no source takes: the layout of a stream or of examples."""

    batch_size: int | None  # what a step reads side by side: lanes of a stream, or at most so many examples
    eval_lanes: int  # lanes of a stream in evaluation: context policy
    eval_batch_size: int | None  # lanes, or examples, at a time in evaluation; None: all lanes, or batch_tokens
    batch_tokens: int | Literal["auto"] | None  # of examples in a step, padding included; auto: by their mean length
    max_length: int  # most tokens in an example
    workers: int  # processes that cut training batches ahead of time; 0: the training process does

    @property
    def lanes(self) -> int:
        """Number of lanes that training reads of a stream."""
        return self.batch_size or DEFAULT_LANES

    @property
    def step_tokens(self) -> int | None:
        """Most tokens of a step of examples, once `auto` has been decided from the data."""
        assert self.batch_tokens != "auto"
        return self.batch_tokens

    def __post_init__(self) -> None:
        if self.batch_tokens is None and self.batch_size is None:
            raise UserError("data.batch_tokens=null: a step would read all examples; set it, or data.batch_size")


def origins(init_from: str | Sequence[str] | None) -> list[str]:
    """Return the runs whose weights a run starts from: none, one, or the forward and the backward one."""
    if init_from is None:
        return []
    if isinstance(init_from, str):
        return [init_from]
    return list(init_from)


def origin_words(init_from: str | Sequence[str] | None) -> str:
    """Return the value of `init_from` as it is written on a command line."""
    if init_from is None or isinstance(init_from, str):
        return str(init_from)
    return f"[{','.join(init_from)}]"


def _faults_of_origins(init_from: str | Sequence[str] | None) -> list[str]:
    """Return lines on why there cannot be such runs."""
    if "" in origins(init_from):
        return ["init_from=: an empty path; name the directory of a run, or null"]
    if init_from is None or isinstance(init_from, str) or len(init_from) == 2:
        return []
    return [f"init_from={origin_words(init_from)}: expected one run, or two: [FORWARD,BACKWARD]"]


def read_budget(budget: str | Sequence[str] | None) -> dict[str, float]:
    """Return the cost limits of a run by kind (one of BUDGETS), parsed from texts such as params:1e6.

    Raises:
        UserError: a text is not of this form.
    """
    limits: dict[str, float] = {}
    if isinstance(budget, str):
        budget = [budget]
    for text in budget or ():
        kind, _, number = text.partition(":")
        if kind not in BUDGETS:
            raise UserError(f"budget={text}: expected {', '.join(f'{name}:NUMBER' for name in BUDGETS)}")
        if kind in limits:
            raise UserError(f"budget={text}: {kind} is given twice; give it once")
        try:
            limits[kind] = float(number)
        except ValueError:
            raise UserError(f"budget={text}: {number!r} is no number; give one, as in {kind}:1e6") from None
        if not 0 < limits[kind] < math.inf:
            raise UserError(f"budget={text}: expected a number above 0")
        if kind == "seconds" and not RANGES["trainer.max_seconds"].holds(limits[kind]):
            raise UserError(f"budget={text}: expected {RANGES['trainer.max_seconds'].words()}")
    if limits.keys() >= {"params", "state"}:
        raise UserError("budget: params and state both say how wide the model is; give one of them")
    if limits.keys() >= {"flops", "seconds"}:
        raise UserError("budget: flops and seconds both say when training ends; give one of them")
    return limits
