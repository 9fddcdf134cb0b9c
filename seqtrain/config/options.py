"""Options that belong to no `_target_`: of the command, the trainer and the batching. Defaults are in conf/."""

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
    init_from: str | list[str] | None  # a run to take weights and tokenizers from, or one per direction
    freeze: list[str]  # parts of the model that are not trained
    # The learning rate is a product of four factors: optimizer.lr (Muon: also lr_rest) is the base value of a
    # parameter, layer_decay scales it by depth, the schedule by step, and tbptt.jitter by chunk length.
    layer_decay: float  # learning rate of each layer divided by that of the layer above
    budget: str | list[str] | None  # cost limits of the run: see `read_budget`

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
    """The group `run`: a user's labels of a run, without effect on results."""

    label: str | None  # `seqtrain compare --by label` groups runs by it
    tags: list[str]


@dataclass(frozen=True, kw_only=True)
class AdapterOptions:
    """The group `adapter`: low-rank updates of the linear maps of a trained model."""

    rank: int
    alpha: float  # the update is scaled by alpha / rank
    targets: list[str]  # parts of the model whose linear maps get an adapter
    train: list[str]  # parts that are trained in full


@dataclass(frozen=True, kw_only=True)
class FrontEndOptions:
    """Options of the group `model` that belong to its front end, which is passed to the model's constructor."""

    embed_dim: int | None = None  # width of token embeddings, which a linear map projects to model.dim; None: no map


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    """The group `trainer`."""

    accelerator: Literal["auto", "cpu", "gpu"]
    devices: int | Literal["all"]  # processes per node: one per GPU, or any number on the CPU
    num_nodes: int
    strategy: Literal["auto", "ddp", "fsdp"]  # auto: ddp for several processes
    check_ranks_every: int  # steps between checks that all processes hold the same weights and gradients
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"]
    compile: Literal["none", "blocks"]  # parts of the model to torch.compile, for training only
    deterministic: bool  # bitwise reproducible on a GPU, by kernels that sum in a fixed order; slower
    threads: int | None  # None: number of cores
    max_steps: int | Literal["auto"] | None  # optimiser steps; None: max_epochs decides; auto: by the size of the data
    max_epochs: int | None
    max_seconds: float | None  # of training, without validations
    accumulate: int  # micro-batches per step: slices of the batch
    grad_clip: float | None  # largest norm of the gradient
    validate_every: int | Literal["auto"]  # steps; auto: ten validations per training
    checkpoint_every: int | Literal["auto"]  # steps; auto: 200, or more if saving is slow
    keep_last: int  # number of newest checkpoints to keep
    keep_best: int  # number of best checkpoints to keep, by the task's main metric
    on_nonfinite: Literal["stop", "skip"]  # at a loss or gradient that is nan or inf
    log_every: int  # steps
    # Options with a default were added later: the configs of older runs lack them.
    profile: Literal["none", "steps"] = "none"  # steps: time the parts of some steps, and record a trace
    recompute: Literal["none", "blocks"] = "none"  # parts recomputed in the backward pass, to save memory
    eval_precision: Literal["full", "training"] = "full"  # precision of validations and `evaluate`

    def __post_init__(self) -> None:
        if self.max_steps is None and self.max_epochs is None and self.max_seconds is None:
            raise UserError(
                "trainer.max_steps=null: training would never end; set trainer.max_steps, trainer.max_epochs or "
                "trainer.max_seconds"
            )


DEFAULT_LANES = 32  # of a stream, if data.batch_size is null


@dataclass(frozen=True, kw_only=True)
class Batching:
    """Options of the group `data` that concern batching instead of the source."""

    batch_size: int | None  # lanes of a stream per step, or the largest number of examples per step
    eval_lanes: int  # lanes of a stream in evaluation; they decide how much context each token has
    eval_batch_size: int | None  # lanes or examples per evaluation batch; None: all lanes, or batch_tokens
    batch_tokens: int | Literal["auto"] | None  # tokens of examples per step, with padding; auto: by mean length
    max_length: int  # largest number of tokens in an example
    workers: int  # processes that prepare training batches in advance; 0: the training process prepares them

    @property
    def lanes(self) -> int:
        """Number of lanes that training reads of a stream."""
        return self.batch_size or DEFAULT_LANES

    @property
    def step_tokens(self) -> int | None:
        """Largest number of tokens in a step of examples, after `auto` has been resolved from the data."""
        assert self.batch_tokens != "auto"
        return self.batch_tokens

    def __post_init__(self) -> None:
        if self.batch_tokens is None and self.batch_size is None:
            raise UserError("data.batch_tokens=null: a step would read all examples; set it, or data.batch_size")


def origins(init_from: str | Sequence[str] | None) -> list[str]:
    """Return the runs whose weights a run starts from: none, one, or two (forward and backward)."""
    if init_from is None:
        return []
    if isinstance(init_from, str):
        return [init_from]
    return list(init_from)


def origin_words(init_from: str | Sequence[str] | None) -> str:
    """Return the value of `init_from` as typed on a command line."""
    if init_from is None or isinstance(init_from, str):
        return str(init_from)
    return f"[{','.join(init_from)}]"


def _faults_of_origins(init_from: str | Sequence[str] | None) -> list[str]:
    """Return the faults of a value of `init_from`."""
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
            raise UserError(f"budget={text}: {number!r} is not a number; give one, such as {kind}:1e6") from None
        if not 0 < limits[kind] < math.inf:
            raise UserError(f"budget={text}: expected a number above 0")
        if kind == "seconds" and not RANGES["trainer.max_seconds"].holds(limits[kind]):
            raise UserError(f"budget={text}: expected {RANGES['trainer.max_seconds'].words()}")
    if limits.keys() >= {"params", "state"}:
        raise UserError("budget: params and state both set the width of the model; give one of them")
    if limits.keys() >= {"flops", "seconds"}:
        raise UserError("budget: flops and seconds both set when training ends; give one of them")
    return limits
