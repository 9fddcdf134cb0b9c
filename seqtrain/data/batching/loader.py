"""Loader of training: a plan chooses the examples or chunks of each optimiser step, and a batcher makes the batch."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator
from multiprocessing.queues import Queue
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch.utils.data import DataLoader, Dataset

from seqtrain.data.batching.plan import deal

ENDLESS = 2**40

# Signals that end training: equal to `distributed.ranks.CAUGHT`, which is not imported here; a test compares them.
LEAVING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
SECONDS_OF_A_LAST_STEP = 30  # that a worker continues after SIGTERM


@runtime_checkable
class Plan(Protocol):
    """Interface of every plan of batches, over parallel lanes or over examples."""

    steps: int  # optimiser steps in an epoch
    num_tokens: int  # in an epoch

    @property
    def padding(self) -> float: ...  # fraction of positions without a token

    def chunk(self, epoch: int, step: int) -> Any: ...

    def tokens_before(self, step: int) -> int: ...


@runtime_checkable
class Batcher(Protocol):
    """Makes the batch of some lanes or examples of a planned step; the loader sets the batch's `fingerprint`."""

    def batch(self, step_plan: Any, lanes: slice, /) -> Any: ...


class TrainLoader:
    """Endless iterator over this process's micro-batches, epoch after epoch, from optimiser step `first_step`."""

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
        """Set up the micro-batches; nothing is read yet.

        Args:
            batcher: Makes the batches.
            plan: Chooses what each optimiser step reads.
            accumulate: Number of micro-batches of this process per optimiser step.
            first_step: Optimiser step to begin with.
            world: Number of training processes.
            rank: Index of this process.
            workers: Processes that make batches ahead of time; with 0, this process makes each one when it is needed.
        """
        self.batches = MicroBatches(batcher, plan, accumulate, world, rank)
        self.first = first_step * accumulate
        self.workers = workers

    def __iter__(self) -> Iterator[Any]:
        numbers = range(self.first, ENDLESS)
        if not self.workers:
            return map(self.batches.__getitem__, numbers)
        ahead = DataLoader(
            self.batches, batch_size=None, sampler=numbers, num_workers=self.workers, worker_init_fn=_become_worker
        )
        # A worker inherits the handlers of this process; signals are blocked until it has set its own.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, LEAVING)
        try:
            batches = iter(ahead)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        return self._ahead(batches)

    def _ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from batches
        except (ConnectionError, EOFError) as error:  # raised if a worker dies while it sends a batch
            raise RuntimeError("DataLoader worker died in the middle of a batch") from error

    def __len__(self) -> int:
        """Return ENDLESS: Lightning sees one endless epoch, so none of its epoch ends falls between our steps."""
        return ENDLESS


def _become_worker(worker: int) -> None:
    """Ignore signals, which the training process handles, and exit if a batch cannot be sent."""
    # Ctrl-C reaches every process of a terminal. The training process saves its step, and then ends its workers.
    for number in LEAVING:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave_later)  # torch also ends a stuck worker with SIGTERM
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEAVING)
    # For example if /dev/shm is full: otherwise the training process would wait forever.
    Queue._on_queue_feeder_error = staticmethod(lambda error, batch: os._exit(1))  # type: ignore[attr-defined]


def _leave_later(number: int, frame: FrameType | None) -> None:
    """Delay the exit, so that the training process can finish its last step; a second signal exits at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(SECONDS_OF_A_LAST_STEP)


class MicroBatches(Dataset):
    """Micro-batches of this process; micro-batch n is a function of n only."""

    def __init__(self, batcher: Batcher, plan: Plan, accumulate: int, world: int, rank: int) -> None:
        self.batcher = batcher
        self.plan = plan
        self.accumulate = accumulate
        self.world = world
        self.rank = rank

    def __getitem__(self, number: int) -> Any:
        step, micro = divmod(number, self.accumulate)
        step_plan = self.plan.chunk(*divmod(step, self.plan.steps))
        # Divided by rank first, so that the micro-batches of a process are adjacent and its lanes are one slice.
        lanes = deal(step_plan.lanes, self.world * self.accumulate, self.rank * self.accumulate + micro)
        batch = self.batcher.batch(step_plan, lanes)
        batch.fingerprint = fingerprint_of(step_plan)
        return batch


def fingerprint_of(step_plan: Any, before: int = 0) -> int:
    """Return a checksum of the plan of one step, nested tuples of arrays and numbers; it is equal for all slices."""
    if not isinstance(step_plan, tuple):
        return zlib.crc32(np.ascontiguousarray(step_plan).tobytes(), before)
    for part in step_plan:
        before = fingerprint_of(part, before)
    return before
