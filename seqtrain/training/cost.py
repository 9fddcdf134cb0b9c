"""Cost of a run before it runs: parameters, FLOPs, tokens, steps, memory and padding."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from omegaconf import DictConfig
from torch import Tensor

from seqtrain.config.options import DEFAULT_LANES
from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.batching.plan import StreamPlan
from seqtrain.data.batching.stream import StreamBatch
from seqtrain.errors import Unavailable
from seqtrain.models.base import Capability, SequenceModel, blank_input, read_warmup
from seqtrain.tasks.base import Task
from seqtrain.training.trainer import on_gpu

PLACES = ("embed", "core", "head", "total")
OPTIMIZER_COPIES = 4  # weights, gradients, and Adam's two moments
FEW_TOKENS = 4  # length of the shortest of three chunks, from which the memory of a long one is extrapolated


@runtime_checkable
class HasParts(Protocol):
    """A model that joins several networks."""

    def parts(self) -> dict[str, list[torch.nn.Module]]:
        """Return the networks by name; their parameters are counted separately."""
        ...


@runtime_checkable
class HasStepCount(Protocol):
    """A model that knows its sequential steps."""

    def sequential_steps(self, length: int) -> int | None:
        """Return the sequential steps needed to read `length` tokens at once, or None if unknown."""
        ...


@runtime_checkable
class OwnTargets(Protocol):
    """A task whose targets have another shape than the tokens."""

    def blank_targets(self, tokens: Tensor) -> Tensor:
        """Return targets shaped as those of a stream for `tokens`."""
        ...


@dataclass(frozen=True)
class Cost:
    """Numbers of a whole training. FLOPs count a multiply-add as 2 and the backward pass as twice the forward pass."""

    parameters: dict[str, int]  # by part, with their total; if the core joins networks, also for each of them
    flops_per_token: float
    tokens_per_step: int
    tokens_per_epoch: int
    steps: int | None  # None, like the next three, if the time limit decides
    epochs: float | None
    tokens: int | None
    flops: float | None
    memory_bytes: int
    padding: float  # fraction of the positions that are padding
    state: int | None = None  # numbers that one lane carries
    tokens_per_second: float | None = None  # speed of the first steps, if measured

    def lines(self) -> list[str]:
        """Return lines to show to the user."""
        inner = [f"{name} {size:,}" for name, size in self.parameters.items() if name not in PLACES]
        core = f"core {self.parameters['core']:,}"
        if inner:
            core += f": {' and '.join(inner)}"
        sizes = f"embed {self.parameters['embed']:,}, {core}, head {self.parameters['head']:,}"
        length = [f"steps           as many as trainer.max_seconds allows, of {self.tokens_per_step:,} tokens"]
        if self.steps is not None:
            length = [
                f"steps           {self.steps:,} of {self.tokens_per_step:,} tokens: {self.epochs:.2f} epochs",
                f"tokens in all   {self.tokens:,}: {self.flops:.3g} FLOPs",
            ]
        if self.seconds is not None:
            speed = f"{self.tokens_per_second:,.0f} tokens/s in the first steps"
            length.append(f"seconds         about {self.seconds:,.0f}, without validations: {speed}")
        return [
            f"parameters      {self.parameters['total']:,} ({sizes})",
            *([] if self.state is None else [f"state           {self.state:,} numbers that a lane carries"]),
            f"FLOPs a token   {self.flops_per_token:,.0f} (training: forward and backward)",
            f"tokens an epoch {self.tokens_per_epoch:,}",
            *length,
            f"memory          about {self.memory_bytes / 2**20:,.0f} MiB (weights, gradients, moments, activations)",
            f"padding         {self.padding:.2%}",
        ]

    @property
    def seconds(self) -> float | None:
        """Seconds of training, without validations. None if tokens or speed are not known."""
        return self.tokens / self.tokens_per_second if self.tokens and self.tokens_per_second else None

    def record(self) -> dict[str, object]:
        """Return the cost as a mapping, for the summary and `--json`."""
        return {**asdict(self), "seconds": self.seconds}


@dataclass(frozen=True)
class ReadPattern:
    """Properties of how training reads the data that determine its cost."""

    length: int  # tokens read at a time; for examples, the mean
    carry: bool  # True if each chunk begins from a carried state
    warmup_chunks: Sequence[int] = ()  # tokens of each earlier chunk that is read for its gradient
    targets_per_token: float = 1.0
    reached: float = 1.0  # fraction of the tokens that gradients reach; the others cost only a forward pass
    recompute: int | None = None  # tokens per piece; all pieces except the last are read twice

    @property
    def pieces(self) -> list[int]:
        """Tokens of each piece that is read at a time, in order."""
        found = []
        for size in (*self.warmup_chunks, self.length):
            most = self.recompute or size
            found += [min(most, size - begin) for begin in range(0, size, most)]
        return found


def estimate(
    model: SequenceModel,
    task: Task,
    plan: StreamPlan | ExamplePlan,
    reading: ReadPattern,
    *,
    accumulate: int,
    steps: int | None,
) -> Cost:
    """Return the cost of a training.

    Args:
        model: Model on any device; a copy on the meta device is measured.
        task: Task on any device, measured in the same way.
        plan: The layout of a step.
        reading: The number of tokens read at a time, and whether state is carried.
        accumulate: Micro-batches of a step; only one of them holds its activations at a time.
        steps: Optimiser steps of the whole training. None: the time limit decides.
    """
    # A set of modules: an embedding shared by source and target is counted once.
    embed = count(torch.nn.ModuleList([model.embed, getattr(model, "target_embed", model.embed)]))
    parameters = {"embed": embed, "core": count(model) - embed, "head": count(task)}
    parameters["total"] = sum(parameters.values())
    if isinstance(model, HasParts):
        for name, modules in model.parts().items():  # already counted in the core
            parameters[name] = sum(map(count, modules))
    cost = Cost(
        parameters=parameters,
        flops_per_token=training_flops(model, task, reading),
        tokens_per_step=plan.max_tokens,
        tokens_per_epoch=plan.num_tokens,
        steps=steps,
        epochs=None,
        tokens=None,
        flops=None,
        memory_bytes=4 * OPTIMIZER_COPIES * parameters["total"],  # as float32
        padding=plan.padding,
        state=state_size(model),
    )
    # Not for examples: it depends on how the task lays them out.
    if isinstance(plan, StreamPlan):
        with contextlib.suppress(RuntimeError):  # a model may depend on values, which meta tensors lack
            lanes = -(-plan.lanes // accumulate)
            cost = replace(cost, memory_bytes=cost.memory_bytes + activations(model, task, lanes, reading))
    if steps is None:
        return cost
    tokens = plan.tokens_before(steps)
    return replace(cost, epochs=steps / plan.steps, tokens=tokens, flops=cost.flops_per_token * tokens)


def training_flops(model: SequenceModel, task: Task, reading: ReadPattern) -> float:
    """Return FLOPs per token: forward, and backward for the fraction of tokens that gradients reach.

    With warm-up chunks, the number is per token of the newest chunk; the first windows of an epoch have fewer of them.
    """
    counted = functools.cache(model.flops_per_token)  # most pieces have the same length
    pieces = reading.pieces
    forward: float = 0
    carried = reading.carry or reading.recompute is not None
    for size in pieces:
        forward += counted(size, carried) * size
        carried = True  # each piece continues from the one before
    # The backward pass costs twice the forward pass: gradients of inputs and of weights. Gradients always reach the
    # head.
    operations, heads = (1 + 2 * reading.reached) * forward, 3.0
    if reading.recompute is not None:
        operations += forward - counted(pieces[-1], True) * pieces[-1]
        heads += 1 - pieces[-1] / reading.length
    return operations / reading.length + heads * task.head_flops() * reading.targets_per_token


def count(module: torch.nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def state_size(model: SequenceModel) -> int | None:
    """Return the numbers that one lane carries; None if the model carries no state, or one that grows with a source."""
    if Capability.STATEFUL | Capability.UNCONDITIONAL not in model.capabilities:
        return None
    return sum(tensor.numel() for tensor in model.initial(1).values())


def num_sequential_steps(model: SequenceModel, length: int) -> int | None:
    """Return the sequential steps in which a model reads `length` tokens at once, or None if unknown."""
    return model.sequential_steps(length) if isinstance(model, HasStepCount) else None


def activations(model: SequenceModel, task: Task, lanes: int, reading: ReadPattern) -> int:
    """Return the bytes that a training step keeps for the backward pass, counted on the meta device without computing.

    On the meta device torch unrolls recurrences token by token, which takes seconds for a long chunk. If memory grows
    by the same amount over a few tokens, the rest is extrapolated.
    """
    model, task = copy.deepcopy(model).to("meta"), copy.deepcopy(task).to("meta")
    if reading.recompute is not None:
        num_cuts = len(reading.pieces) - 1
        piece = ReadPattern(length=max(reading.pieces), carry=True)
        return activations(model, task, lanes, piece) + num_cuts * _state_bytes(model, lanes)
    length, lengths = reading.length, (FEW_TOKENS, 2 * FEW_TOKENS, 3 * FEW_TOKENS)
    step_by_step = (num_sequential_steps(model, length) or 0) >= length
    if step_by_step and length > lengths[-1] and not reading.warmup_chunks:
        kept = [_kept(model, task, lanes, replace(reading, length=short)) for short in lengths]
        each, remainder = divmod(kept[2] - kept[1], FEW_TOKENS)
        if kept[2] - kept[1] == kept[1] - kept[0] and remainder == 0:
            return kept[2] + each * (length - lengths[2])
    return _kept(model, task, lanes, reading)


def _kept(model: SequenceModel, task: Task, lanes: int, reading: ReadPattern) -> int:
    """Return the bytes that the forward pass of a model and a task on the meta device keeps."""
    kept: dict[int, torch.UntypedStorage] = {}  # a storage that is kept twice, or as a view, counts once

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[id(storage)] = storage  # a reference, so that no other storage gets its id
        return tensor

    tokens = blank_input(model, lanes, reading.length)
    size = lanes * reading.length
    batch = StreamBatch(
        tokens=tokens,
        targets=task.blank_targets(tokens) if isinstance(task, OwnTargets) else tokens,
        reset_lanes=None,
        lanes=slice(0, lanes),
        count=size,
        total=size,
    )
    warmup = [(blank_input(model, lanes, size), None, None) for size in reading.warmup_chunks]
    state = None
    with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        if reading.carry:
            state = model.initial(lanes)
        task.evaluate(model, batch, read_warmup(model, warmup, state)[-1])
    for weight in (*model.parameters(), *task.parameters()):  # counted as parameters already
        kept.pop(id(weight.untyped_storage()), None)
    return sum(storage.nbytes() for storage in kept.values())


def _state_bytes(model: SequenceModel, lanes: int) -> int:
    """Return the bytes of the state of these lanes, of a model on the meta device."""
    with torch.device("meta"):
        return sum(tensor.nbytes for tensor in model.initial(lanes).values())


def check_model(config: DictConfig, model: SequenceModel) -> None:
    """Raise Unavailable if a model, on the meta device, needs more than this machine's memory."""
    sizes = [f"model.{key}={config.model[key]}" for key in ("dim", "num_layers") if key in config.model]
    state_bytes = 0
    if config.tbptt.carry:
        state_bytes = _state_bytes(model, config.data.batch_size or DEFAULT_LANES)
    check_memory(config, ", ".join(sizes), count(model), state_bytes)


def check_memory(config: DictConfig, what: str, parameters: float, state: int = 0) -> None:
    """Raise Unavailable if this many parameters cannot fit in memory.

    Args:
        config: Config with the precision and the device.
        what: The options that set the size, for the message.
        parameters: Number of parameters.
        state: Bytes of the carried state.
    """
    kept, copies = "weights, gradients and moments", OPTIMIZER_COPIES
    # A GPU stores gradients and moments, and other processes store shards; but all weights are created here.
    if on_gpu(config) or config.trainer.strategy == "fsdp":
        kept, copies = "weights", 1
    if state:
        kept += " and carried state"
    bytes_each = 8 if config.trainer.precision == "64-true" else 4
    # A lower bound: activations, which depend on the batch, are not included.
    needed = parameters * copies * bytes_each + state
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise Unavailable(
            f"{what}: {kept} take {needed / 1e9:,.0f} GB, but this machine has {memory / 1e9:,.0f}; use a smaller model"
        )
