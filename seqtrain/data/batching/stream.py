"""Batches of a stream: chunks of the plan, cut from tokens or from series of real values."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from seqtrain.data.batching.documents import TOUCHED_BYTES
from seqtrain.data.batching.plan import Chunk, StreamPlan, deal
from seqtrain.data.token_store.tokens import Pages, TokenArray

IGNORED = -100
"""Target of a padded position, of tokens; of real values it is NaN, which no loss can overlook."""


class WarmupChunk(NamedTuple):
    """Tokens of some lanes that are read before those of a batch, so that the gradient reaches them."""

    tokens: Shaped[Tensor, "B T *F"]
    reset_lanes: Bool[Tensor, " B"] | None  # whose state is reset after them; None where none is


def moved(tensor: Shaped[Tensor, "..."], device: torch.device, non_blocking: bool) -> Shaped[Tensor, "..."]:
    """Return the tensor on another device.

    Args:
        tensor: A tensor of a batch.
        device: Where it goes.
        non_blocking: True to copy without waiting for the GPU. The tensor is pinned first, because a GPU copies
            asynchronously only from pinned memory.
    """
    if non_blocking and device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=non_blocking)


class StreamBatch:
    """A chunk of time of some lanes: `tokens` in, `targets` to predict, and `reset_lanes`, whose state is reset.

    `tokens` are ids (B, T), or real values (B, T, F); `targets` are ids (B, T), or a table of values for each position.
    """

    def __init__(
        self,
        *,
        tokens: Shaped[Tensor, "B T *F"],
        targets: Shaped[Tensor, "B T *H"],
        reset_lanes: Bool[Tensor, " B"] | None,
        lanes: slice,
        count: int,
        total: int,
        warmup_chunks: tuple[WarmupChunk, ...] = (),
        advance: int = 1,
    ) -> None:
        self.tokens = tokens
        self.targets = targets
        self.reset_lanes = reset_lanes  # before anything is read; None where no lane's state is reset
        self.lanes = lanes  # which of all lanes these are
        self.count = count  # targets in this batch
        self.num_targets = count  # fewer, or more, where not each position has one target
        self.total = total  # targets in the whole optimiser step: all micro-batches of all ranks
        # Read again for the gradient alone, oldest first: a window of k2 tokens that advances by k1 knows them already.
        self.warmup_chunks = warmup_chunks
        self.advance = advance  # how many readings, its warm-up's and then its own, the next batch no longer reads
        self.fingerprint = 0  # checksum of the plan of the whole step
        self.series: Int[Tensor, "B T"] | None = None  # of real values: which series each position is of

    @property
    def totals(self) -> dict[str, int]:
        """Targets of each differentiated part in the whole optimiser step."""
        return {"loss": self.total}

    def to(self, device: torch.device, non_blocking: bool = False) -> StreamBatch:
        """Return the same batch on another device; `non_blocking` as in `moved`."""
        there = copy.copy(self)
        there.tokens = moved(self.tokens, device, non_blocking)
        there.targets = moved(self.targets, device, non_blocking)
        if self.series is not None:
            there.series = moved(self.series, device, non_blocking)
        if self.reset_lanes is not None:
            there.reset_lanes = moved(self.reset_lanes, device, non_blocking)
        warmup_chunks = []
        for tokens, lanes in self.warmup_chunks:
            if lanes is not None:
                lanes = moved(lanes, device, non_blocking)
            warmup_chunks.append(WarmupChunk(moved(tokens, device, non_blocking), lanes))
        there.warmup_chunks = tuple(warmup_chunks)
        return there


class Stream:
    """Cuts batches from a corpus, or from series of real values; each position is predicted from those before it."""

    def __init__(
        self,
        tokens: Shaped[np.ndarray, " n *F"] | TokenArray,
        documents: Int[np.ndarray, " offsets"],
        start: int | float,
        dtype: type[np.generic] = np.int64,
    ) -> None:
        """Set the data.

        Args:
            tokens: Ids (n,), or real values (n, F), of all documents or series end to end.
            documents: Beginning (offsets,) of each document, and the end of the last one.
            start: Input that predicts the first position of a document: an id, or a value for all features.
            dtype: Type of inputs and targets: an integer type for ids, a float type for values.
        """
        self.tokens = tokens
        self.documents = documents
        self._pages = Pages(documents)
        self.start = start
        self.dtype = dtype
        self.padding = np.nan if np.issubdtype(dtype, np.floating) else IGNORED

    def batch(self, chunk: Chunk, lanes: slice) -> StreamBatch:
        """Return the batch that these lanes read of a chunk."""
        readings = (*chunk.warmup_chunks, chunk)
        # The lanes that a reading resets before it begins are reset at the end of the reading before.
        warmup_chunks = []
        for reading, after in pairwise(readings):
            tokens, _ = self._read(reading, lanes)
            warmup_chunks.append(WarmupChunk(tokens, _none_if_empty(after.reset_lanes[lanes])))
        tokens, targets = self._read(chunk, lanes)
        return StreamBatch(
            tokens=tokens,
            targets=targets,
            reset_lanes=_none_if_empty(readings[0].reset_lanes[lanes]),
            lanes=lanes,
            count=int(chunk.count[lanes].sum()),
            total=int(chunk.count.sum()),
            warmup_chunks=tuple(warmup_chunks),
            advance=chunk.advance,
        )

    def _read(self, reading: Chunk, lanes: slice) -> tuple[Shaped[Tensor, "B T *F"], Shaped[Tensor, "B T *H"]]:
        """Return inputs and targets of one reading of these lanes."""
        begin, count = reading.begin[lanes], reading.count[lanes]
        time = np.arange(max(int(count.max()), 1))  # no model reads nothing
        index = begin[:, None] + time  # (B, T)
        real = time < count[:, None]
        index = np.where(real, index, 0)  # padding may lie beyond the last token
        tokens = self.tokens[np.maximum(index - 1, 0)].astype(self.dtype)
        # The document that a token stands in begins at that token: nothing in its document came before it.
        place = np.searchsorted(self.documents, index, side="right") - 1
        self._pages.touch(len(index) * TOUCHED_BYTES)
        tokens[self.documents[place] == index] = self.start
        targets = self.tokens[index].astype(self.dtype)
        targets[~real] = self.padding
        return torch.from_numpy(tokens), torch.from_numpy(targets)


def _none_if_empty(lanes: Bool[np.ndarray, " B"]) -> Bool[Tensor, " B"] | None:
    """Return the mask of lanes, or None if it is all False: checking that on a GPU would make it wait."""
    return torch.from_numpy(lanes) if lanes.any() else None


class EvalLoader:
    """Yields every token of a split exactly once: `batch_size` lanes at a time, each from its start to its end."""

    def __init__(
        self, stream: Stream, plan: StreamPlan, *, batch_size: int | None, world: int = 1, rank: int = 0
    ) -> None:
        """Set the slice of lanes. `world`: number of processes; `rank`: number of this one."""
        self.stream = stream
        self.plan = plan
        self.world = world
        self.rank = rank
        self.groups = -(-plan.lanes // (batch_size or plan.lanes))

    def __iter__(self) -> Iterator[StreamBatch]:
        for group in range(self.groups):
            together = deal(self.plan.lanes, self.groups, group)
            mine = deal(together.stop - together.start, self.world, self.rank)
            if mine.start == mine.stop:  # more processes than lanes
                continue
            lanes = slice(together.start + mine.start, together.start + mine.stop)
            for step in range(self.plan.steps):
                yield self.stream.batch(self.plan.chunk(0, step), lanes)

    def __len__(self) -> int:
        return self.groups * self.plan.steps
