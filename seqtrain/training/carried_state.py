"""Reading of a batch, and the state carried from chunk to chunk: by slices of the lanes, and joined over processes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seqtrain.data.batching.stream import StreamBatch
from seqtrain.models.base import SequenceModel, State, detach, read, read_warmup, reset, select
from seqtrain.tasks.base import LossTerms, Task
from seqtrain.tasks.output import without_gradients

Slices = dict[tuple[int, int], State]
"""States by the range of their global lanes: the first, and the one after the last."""


class CarriedState:
    """State that training, or one evaluation, carries from chunk to chunk, by slice of the global lanes."""

    def __init__(self) -> None:
        # One slice per micro-batch: the micro-batches of a step are read in turn, each from the state of its own lanes.
        self.slices: Slices = {}

    def take(self, lanes: slice) -> State | None:
        """Return the state of these lanes, or None if none is carried yet."""
        return self.slices.get((lanes.start, lanes.stop))

    def put(self, lanes: slice, state: State) -> None:
        """Store the state of these lanes, detached from the graph and in the memory layout that a resumed run has."""
        self.slices[lanes.start, lanes.stop] = {name: _laid_out(value) for name, value in detach(state).items()}

    def on_cpu(self) -> Slices:
        """Return the slices on the CPU, so that they can be sent to other processes."""
        return {lanes: {name: value.cpu() for name, value in state.items()} for lanes, state in self.slices.items()}

    def reset_nonfinite(self) -> None:
        """Reset lanes whose state is not finite to the initial state; keep the others."""
        for lanes, state in self.slices.items():
            # All tensors of a lane are reset: an LSTM's output may be finite where its cell is not.
            finite = [value.isfinite().unsqueeze(-1).flatten(1).all(1) for value in state.values()]  # each (B,)
            self.slices[lanes] = reset(state, ~torch.stack(finite).all(0))

    def spread(self, state: State, slices: list[slice], device: torch.device) -> None:
        """Split a state of all lanes into the slices of this layout.

        Args:
            state: State of all lanes, by name; lanes are the first dimension.
            slices: Global lanes of each micro-batch of this process.
            device: Device that the slices are moved to.
        """
        self.slices = {}
        if not state:  # a checkpoint before the first step has no carried state
            return
        for lanes in slices:
            self.put(lanes, {name: value.to(device) for name, value in select(state, lanes).items()})


def read_batch(
    model: SequenceModel, task: Task, batch: Any, carried: CarriedState | None, recompute: int | None = None
) -> tuple[LossTerms, State]:
    """Read a batch: return its loss terms and the state after it. The learner reads every batch by this function.

    Args:
        model: the model, which also reads the warm-up chunks.
        task: the task, which defines the loss.
        batch: batch of a stream, or of examples.
        carried: the carried state, updated for the next batch; None: none is carried.
        recompute: tokens per piece, which the backward pass recomputes; None: one piece.
    """
    state = None
    if carried is not None:
        state = carried.take(batch.lanes)
        if state is None:
            state = model.initial(len(batch.tokens))
        elif batch.reset_lanes is not None:
            state = reset(state, batch.reset_lanes)
    if recompute is None:
        states = read_warmup(model, batch.warmup_chunks, state)
        terms, after = task.evaluate(model, batch, states[-1])
    else:
        start = model.initial(len(batch.tokens)) if state is None else state
        states = read_warmup(model, batch.warmup_chunks, start, partial(_read_twice, recompute))
        terms, after = _evaluate_twice(model, task, batch, states[-1], recompute)
    if carried is not None:
        # The next batch begins after the first chunk of this one (advance 1). While a window still grows (advance 0),
        # it begins where this one began.
        carried.put(batch.lanes, [*states, after][batch.advance])
    return terms, after


def _evaluate_twice(
    model: SequenceModel, task: Task, batch: StreamBatch, state: State | None, length: int
) -> tuple[LossTerms, State]:
    """Return the loss terms of a batch and the state after it; store for the backward pass only what one piece needs.

    For each piece except the last, only the state before it is stored, and the backward pass reads the piece again with
    the same dropout. The backward pass begins with the last piece, which is not read again.
    """
    *earlier, last = batch.pieces(length)
    sums: LossTerms = {}
    for piece in earlier:
        terms, state = _checkpointed(task.evaluate, model, piece, state)
        sums = _added(sums, terms)
    terms, state = task.evaluate(model, last, state)
    return _added(sums, terms), state


def _read_twice(
    length: int,
    model: SequenceModel,
    tokens: Shaped[Tensor, "B T *F"],
    state: State,
    starts: Bool[Tensor, "B T"] | None,
) -> tuple[None, State]:
    """Return the state after a chunk of a warm-up; the backward pass reads its pieces again."""
    for begin in range(0, tokens.shape[1], length):
        time = slice(begin, begin + length)
        state = _checkpointed(read, model, tokens[:, time], state, None if starts is None else starts[:, time])[1]
    return None, state


def _added(sums: LossTerms, terms: LossTerms) -> LossTerms:
    """Return the added sums and counts of two pieces; `sums` may be empty."""
    if not sums:
        return terms
    return {name: (sums[name][0] + total, sums[name][1] + count) for name, (total, count) in terms.items()}


def _checkpointed(read: Callable[..., Any], *inputs: Any) -> Any:
    """Call `read`; if gradients are needed, store only its inputs, and call it again in the backward pass."""
    if not torch.is_grad_enabled():
        return read(*inputs)
    return checkpoint(read, *inputs, use_reentrant=False, context_fn=lambda: (without_gradients(), nullcontext()))


def join_slices(slices_by_rank: Sequence[Slices]) -> State:
    """Return the state of all lanes in order, for any distribution of slices over processes."""
    slices = ChainMap(*slices_by_rank)  # processes read disjoint lanes
    states = [slices[lanes] for lanes in sorted(slices)]
    if not states:
        return {}
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def _laid_out(value: Tensor) -> Tensor:
    """Return a tensor as torch allocates it: contiguous, and at the start of its storage.

    Matrix products depend in their last bits on strides and on the alignment of an operand. These differ between a
    resumed run and the run that it continues, unless both use the same layout.
    """
    if value.is_contiguous() and value.storage_offset() == 0:
        return value
    return value.clone(memory_format=torch.contiguous_format)
