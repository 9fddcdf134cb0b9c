"""The one loader of training: a plan says what each optimiser step reads, a batcher makes it."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from multiprocessing.queues import Queue
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch.utils.data import DataLoader, Dataset

from seqtrain.data.batching.plan import deal

ENDLESS = 2**40


@runtime_checkable
class Plan(Protocol):
    """What every plan of batches says: of lanes that stand side by side, or of examples."""

    steps: int  # optimiser steps in an epoch
    num_tokens: int  # in an epoch

    @property
    def padding(self) -> float: ...  # the fraction of the positions that hold no token

    def chunk(self, epoch: int, step: int) -> Any: ...

    def tokens_before(self, step: int) -> int: ...


@runtime_checkable
class Batcher(Protocol):
    """Makes the batch of some lanes, or examples, of what a plan says of a step; it takes a `fingerprint`."""

    def batch(self, step_plan: Any, lanes: slice, /) -> Any: ...


class TrainLoader:
    """This process's micro-batches from optimiser step `first_step` on, epoch after epoch, without end."""

    def __init__(
        self,
        batcher: Batcher,
        plan: Plan,
        *,
        accumulate: int,
        first_step: int = 0,
        world: int = 1,
        rank: int = 0,
        workers: int = 0,
    ) -> None:
        """Lays out the micro-batches; nothing is read yet.

        Args:
            batcher: Makes the batches.
            plan: What each optimiser step reads.
            accumulate: Micro-batches of this process in a step.
            first_step: The optimiser step to begin with.
            world: The number of processes that train.
            rank: Which of them this is.
            workers: Processes that make batches ahead of time; with 0 this one makes them when they are asked for.
        """
        self.batches = MicroBatches(batcher, plan, accumulate, world, rank)
        self.first = first_step * accumulate
        self.workers = workers

    def __iter__(self) -> Iterator[Any]:
        numbers = range(self.first, ENDLESS)
        if not self.workers:
            return map(self.batches.__getitem__, numbers)
        ahead = DataLoader(
            self.batches, batch_size=None, sampler=numbers, num_workers=self.workers, worker_init_fn=_end_with_a_batch
        )
        return self._ahead(iter(ahead))

    def _ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from batches
        except (ConnectionError, EOFError) as error:  # what torch says where one dies while it hands a batch over
            raise RuntimeError("DataLoader worker died in the middle of a batch") from error

    def __len__(self) -> int:
        """To Lightning the whole training is one endless epoch: none of its epoch ends falls between our steps."""
        return ENDLESS


def _end_with_a_batch(worker: int) -> None:
    """Ends a worker that cannot hand a batch over, as where /dev/shm is full: it would be waited for without end."""
    Queue._on_queue_feeder_error = staticmethod(lambda error, batch: os._exit(1))  # type: ignore[attr-defined]


class MicroBatches(Dataset):
    """Micro-batch n of this process, a function of n alone."""

    def __init__(self, batcher: Batcher, plan: Plan, accumulate: int, world: int, rank: int) -> None:
        self.batcher = batcher
        self.plan = plan
        self.accumulate = accumulate
        self.world = world
        self.rank = rank

    def __getitem__(self, number: int) -> Any:
        step, micro = divmod(number, self.accumulate)
        step_plan = self.plan.chunk(*divmod(step, self.plan.steps))
        # By rank first: a process's micro-batches are neighbours, so that its lanes are one slice.
        lanes = deal(step_plan.lanes, self.world * self.accumulate, self.rank * self.accumulate + micro)
        batch = self.batcher.batch(step_plan, lanes)
        batch.fingerprint = fingerprint_of(step_plan)
        return batch


def fingerprint_of(step_plan: Any, before: int = 0) -> int:
    """A checksum of what one step reads, arrays and numbers at any depth: the same for every slice of it."""
    if not isinstance(step_plan, tuple):
        return zlib.crc32(np.ascontiguousarray(step_plan).tobytes(), before)
    for part in step_plan:
        before = fingerprint_of(part, before)
    return before
