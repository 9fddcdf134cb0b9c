"""What a run costs before it runs: parameters, operations, tokens, steps, memory and padding."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from seqtrain.data.batching.plan import ExamplePlan, StreamPlan
from seqtrain.data.batching.stream import StreamBatch
from seqtrain.models.base import SequenceModel, read_warmup
from seqtrain.tasks.base import Task

OPTIMIZER_COPIES = 4  # weights, gradients, and Adam's two moments


@dataclass(frozen=True)
class Cost:
    """Numbers of a whole training; FLOPs count a multiply-add as 2 and the backward pass as twice the forward."""

    parameters: dict[str, int]  # by part, with their total
    flops_per_token: float
    tokens_per_step: int
    tokens_per_epoch: int
    steps: int | None  # None, as the three after it: the clock decides
    epochs: float | None
    tokens: int | None
    flops: float | None
    memory_bytes: int
    padding: float  # share of the positions that hold no target

    def lines(self) -> list[str]:
        """For a person."""
        parts = ", ".join(f"{name} {count:,}" for name, count in self.parameters.items() if name != "total")
        if self.steps is None:
            length = [f"steps           as many as trainer.max_seconds allows, of {self.tokens_per_step:,} tokens"]
        else:
            length = [
                f"steps           {self.steps:,} of {self.tokens_per_step:,} tokens: {self.epochs:.2f} epochs",
                f"tokens in all   {self.tokens:,}: {self.flops:.3g} FLOPs",
            ]
        return [
            f"parameters      {self.parameters['total']:,} ({parts})",
            f"FLOPs a token   {self.flops_per_token:,.0f} (training: forward and backward)",
            f"tokens an epoch {self.tokens_per_epoch:,}",
            *length,
            f"memory          about {self.memory_bytes / 2**20:,.0f} MiB (weights, gradients, moments, activations)",
            f"padding         {self.padding:.2%}",
        ]

    def record(self) -> dict[str, object]:
        """For the summary and `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Reading:
    """How training reads its data, as far as that decides what it costs."""

    length: int  # tokens that are read at a time, of examples the mean
    carry: bool  # whether a reading goes on from a state
    warmup_chunks: Sequence[int] = ()  # tokens of each reading before, for the gradient to reach them
    targets_per_token: float = 1.0
    reached: float = 1.0  # share of the tokens that gradients reach; of the others only the forward pass is counted


def estimate(
    model: SequenceModel,
    task: Task,
    plan: StreamPlan | ExamplePlan,
    reading: Reading,
    *,
    accumulate: int,
    steps: int | None,
) -> Cost:
    """The cost of `steps` optimiser steps of this plan.

    Of examples the memory of activations is not counted: it depends on what the task makes of them; nor is that of a
    model that cannot run on the meta device.
    """
    embed = count(torch.nn.ModuleList([model.embed, getattr(model, "target_embed", model.embed)]))
    parameters = {"embed": embed, "core": count(model) - embed, "head": count(task)}
    parameters["total"] = sum(parameters.values())
    each = training_flops(model, task, reading)
    tokens = None if steps is None else plan.tokens_before(steps)
    memory = 4 * OPTIMIZER_COPIES * parameters["total"]
    if isinstance(plan, StreamPlan):
        with contextlib.suppress(RuntimeError):  # of a model whose work depends on values, which meta tensors lack
            memory += activations(model, task, -(-plan.lanes // accumulate), reading)
    return Cost(
        parameters=parameters,
        flops_per_token=each,
        tokens_per_step=int(plan.targets.max()),
        tokens_per_epoch=plan.num_tokens,
        steps=steps,
        epochs=None if steps is None else steps / plan.steps,
        tokens=tokens,
        flops=None if tokens is None else each * tokens,
        memory_bytes=memory,
        padding=plan.padding,
    )


def training_flops(model: SequenceModel, task: Task, reading: Reading) -> float:
    """Operations per token of forward, and of backward for the share of the tokens that gradients reach.

    Where a history is read, per token of the newest reading; the first windows of an epoch have less of it.
    """
    sizes = [*reading.warmup_chunks, reading.length]
    passes = [model.flops_per_token(size, reading.carry or bool(number)) * size for number, size in enumerate(sizes)]
    head = 3 * task.head_flops() * reading.targets_per_token
    return (1 + 2 * reading.reached) * sum(passes) / reading.length + head


def count(module: torch.nn.Module) -> int:
    """Trainable numbers."""
    return sum(parameter.numel() for parameter in module.parameters())


def activations(model: SequenceModel, task: Task, lanes: int, reading: Reading) -> int:
    """Bytes that a training step keeps for the backward pass: counted on the meta device, where nothing is computed."""
    model, task = copy.deepcopy(model).to("meta"), copy.deepcopy(task).to("meta")
    own = [parameter.untyped_storage() for parameter in (*model.parameters(), *task.parameters())]
    kept: dict[int, torch.UntypedStorage] = {}  # a storage that is kept twice, or as a view, is one

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[id(storage)] = storage
        return tensor

    tokens = torch.zeros(lanes, reading.length, dtype=torch.long, device="meta")
    size = lanes * reading.length
    batch = StreamBatch(tokens=tokens, targets=tokens, reset_lanes=None, lanes=slice(0, lanes), count=size, total=size)
    past = [(torch.zeros(lanes, size, dtype=torch.long, device="meta"), None) for size in reading.warmup_chunks]
    with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        task.evaluate(model, batch, read_warmup(model, past, model.initial(lanes) if reading.carry else None)[-1])
    for storage in own:
        kept.pop(id(storage), None)
    return sum(storage.nbytes() for storage in kept.values())
