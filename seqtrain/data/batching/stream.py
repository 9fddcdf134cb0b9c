"""Batches of a stream: chunks of the plan, cut from tokens or from series of real values."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from seqtrain.data.batching.documents import TOUCHED_BYTES
from seqtrain.data.batching.plan import Chunk, deal
from seqtrain.data.token_store.tokens import Pages, TokenArray

IGNORED = -100
"""Target of a padded position of tokens; for real values it is NaN, so a loss that does not mask it is NaN, too."""


class WarmupChunk(NamedTuple):
    """Tokens that lanes read again before those of a batch, so that the gradient reaches back through them."""

    tokens: Shaped[Tensor, "B T *F"]
    reset_lanes: Bool[Tensor, " B"] | None  # lanes whose state is reset after these tokens; None: no lane
    starts: Bool[Tensor, "B T"] | None  # positions where a document begins with a fresh state; None: no position


def moved(tensor: Shaped[Tensor, "..."], device: torch.device, non_blocking: bool) -> Shaped[Tensor, "..."]:
    """Return the tensor on another device.

    Args:
        tensor: A tensor of a batch.
        device: Target device.
        non_blocking: True to copy without waiting for the GPU. The tensor is pinned first, because a GPU copies
            asynchronously only from pinned memory.
    """
    if non_blocking and device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=non_blocking)


class StreamBatch:
    """A chunk of some lanes: the input `tokens`, the `targets` to predict, and the lanes whose state is reset.

    `tokens` are ids (B, T), or real values (B, T, F); `targets` are ids (B, T), or values (B, T, H, C).
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
        lengths: Int[np.ndarray, " B"] | None = None,
        starts: Bool[Tensor, "B T"] | None = None,
    ) -> None:
        self.tokens = tokens
        self.targets = targets
        self.reset_lanes = reset_lanes  # lanes whose state is reset before the batch is read; None: no lane
        # Positions where a document begins, from a state of zeros. None: no document begins within the chunk.
        self.starts = starts
        self.lanes = lanes  # indices of these lanes among all lanes
        self.count = count  # positions in this batch, without padding
        self.num_targets = count  # differs from `count` if some positions have no target, or several
        self.total = total  # targets in the whole optimiser step: all micro-batches of all ranks
        # With k1 < k2: earlier tokens of the window, oldest first. They are not targets again; they are read so that
        # the gradient passes through them.
        self.warmup_chunks = warmup_chunks
        self.advance = advance  # as in `Chunk`
        self.fingerprint = 0  # checksum of the plan of the whole step
        # Positions of each lane without padding; None: all. On the CPU, so that counting does not wait for a GPU.
        self.lengths = lengths
        self.series: Int[Tensor, "B T"] | None = None  # for real values: index of the series of each position
        self.targets_at: Int[np.ndarray, " T"] | None = None  # number of targets at each time; None: one per position

    @property
    def totals(self) -> dict[str, int]:
        """Targets of each differentiated part in the whole optimiser step."""
        return {"loss": self.total}

    def pieces(self, length: int) -> Iterator[StreamBatch]:
        """Yield pieces of the batch of at most `length` time steps, without warm-up chunks and resets."""
        lanes, width = self.tokens.shape[:2]
        lengths = np.full(lanes, width) if self.lengths is None else self.lengths
        for begin in range(0, width, length):
            time = slice(begin, begin + length)
            piece = copy.copy(self)
            piece.tokens, piece.targets = self.tokens[:, time], self.targets[:, time]
            piece.reset_lanes, piece.warmup_chunks = None, ()
            if self.starts is not None:
                piece.starts = self.starts[:, time]
            piece.lengths = (lengths - begin).clip(0, length)
            piece.count = piece.num_targets = int(piece.lengths.sum())
            if self.series is not None:
                piece.series = self.series[:, time]
            if self.targets_at is not None:
                piece.targets_at = self.targets_at[time]
                piece.num_targets = int(piece.targets_at.sum())
            yield piece

    def to(self, device: torch.device, non_blocking: bool = False) -> StreamBatch:
        """Return the same batch on another device; `non_blocking` as in `moved`."""
        there = copy.copy(self)
        there.tokens = moved(self.tokens, device, non_blocking)
        there.targets = moved(self.targets, device, non_blocking)
        if self.series is not None:
            there.series = moved(self.series, device, non_blocking)
        if self.reset_lanes is not None:
            there.reset_lanes = moved(self.reset_lanes, device, non_blocking)
        if self.starts is not None:
            there.starts = moved(self.starts, device, non_blocking)
        warmup_chunks = []
        for tokens, *masks in self.warmup_chunks:
            lanes, starts = (None if mask is None else moved(mask, device, non_blocking) for mask in masks)
            warmup_chunks.append(WarmupChunk(moved(tokens, device, non_blocking), lanes, starts))
        there.warmup_chunks = tuple(warmup_chunks)
        return there


class Stream:
    """Batches of a corpus, or of series of real values; each position is predicted from those before it."""

    def __init__(
        self,
        tokens: Shaped[np.ndarray, " n *F"] | TokenArray,
        documents: Int[np.ndarray, " offsets"],
        start: int | float,
        dtype: type[np.generic] = np.int64,
    ) -> None:
        """Set the data.

        Args:
            tokens: Ids (n,), or real values (n, F), of all documents or series, concatenated.
            documents: Start (offsets,) of each document, and the end of the last one.
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
        """Return the batch of these lanes of a chunk."""
        readings = (*chunk.warmup_chunks, chunk)
        resets, starts = zip(*(self._resets(reading, lanes) for reading in readings), strict=True)
        # Lanes to reset before a reading are reset at the end of the previous reading.
        warmup_chunks = []
        for reading, after, begins in zip(readings, resets[1:], starts, strict=False):
            warmup_chunks.append(WarmupChunk(self._read(reading, lanes)[0], after, begins))
        tokens, targets = self._read(chunk, lanes)
        return StreamBatch(
            tokens=tokens,
            targets=targets,
            reset_lanes=resets[0],
            starts=starts[-1],
            lanes=lanes,
            count=int(chunk.count[lanes].sum()),
            total=int(chunk.count.sum()),
            warmup_chunks=tuple(warmup_chunks),
            advance=chunk.advance,
            lengths=chunk.count[lanes],
        )

    def _positions(self, reading: Chunk, lanes: slice) -> tuple[Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"]]:
        """Return the positions that these lanes read in one reading, and a mask of those that are not padding."""
        begin, count = reading.begin[lanes], reading.count[lanes]
        time = np.arange(max(int(count.max()), 1))  # models cannot read an empty sequence
        real = time < count[:, None]
        return np.where(real, begin[:, None] + time, 0), real  # padding may lie beyond the last token

    def _starts(self, positions: Int[np.ndarray, "B T"]) -> Bool[np.ndarray, "B T"]:
        """Return a mask of the positions at which a document begins."""
        place = np.searchsorted(self.documents, positions, side="right") - 1
        self._pages.touch(len(positions) * TOUCHED_BYTES)
        return self.documents[place] == positions

    def _resets(self, reading: Chunk, lanes: slice) -> tuple[Bool[Tensor, " B"] | None, Bool[Tensor, "B T"] | None]:
        """Return masks of the lanes to reset before a reading, and of document starts within it; None: all False."""
        reset_lanes, within = reading.reset_lanes[lanes], None
        if reading.by_document:
            positions, real = self._positions(reading, lanes)
            starts = self._starts(positions) & real
            reset_lanes = reset_lanes | starts[:, 0]
            if starts[:, 1:].any():
                within = torch.from_numpy(starts)
        # None, because checking on a GPU that a mask is all False would wait for the GPU.
        return torch.from_numpy(reset_lanes) if reset_lanes.any() else None, within

    def _read(self, reading: Chunk, lanes: slice) -> tuple[Shaped[Tensor, "B T *F"], Shaped[Tensor, "B T *H"]]:
        """Return inputs and targets of one reading of these lanes."""
        index, real = self._positions(reading, lanes)
        tokens = self.tokens[np.maximum(index - 1, 0)].astype(self.dtype)
        tokens[self._starts(index)] = self.start
        targets = self.tokens[index].astype(self.dtype)
        targets[~real] = self.padding
        return torch.from_numpy(tokens), torch.from_numpy(targets)


@runtime_checkable
class LanePlan(Protocol):
    """A plan of the tokens that each lane reads in each step."""

    lanes: int
    steps: int

    def chunk(self, epoch: int, step: int) -> Chunk:
        """Return the tokens that each lane reads in a step."""
        ...


class EvalLoader:
    """Yields every token of a plan exactly once: `batch_size` lanes at a time, each from its start to its end."""

    def __init__(
        self, stream: Stream, plan: LanePlan, *, batch_size: int | None, world: int = 1, rank: int = 0
    ) -> None:
        """Set the slice of lanes. `world`: number of processes; `rank`: index of this one."""
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
