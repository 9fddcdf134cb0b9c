"""Batches of a stream: what the plan says, cut from the tokenised corpus."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqtrain.data.batching.plan import Chunk, StreamPlan, deal

IGNORED = -100
"""Target of a padded position."""


class Past(NamedTuple):
    """Tokens of some lanes that are read before those of a batch, for the gradient to reach them."""

    tokens: Tensor  # (B, T)
    forgotten: Tensor | None  # (B,) lanes that start from nothing after them; None where none does


class StreamBatch:
    """A chunk of time of some lanes: `tokens` (B, T) in, `targets` (B, T) to predict, `starts` (B,) fresh lanes."""

    def __init__(
        self,
        *,
        tokens: Tensor,
        targets: Tensor,
        starts: Tensor | None,
        lanes: slice,
        count: int,
        total: int,
        warmup_chunks: tuple[Past, ...] = (),
        advance: int = 1,
    ) -> None:
        self.tokens = tokens
        self.targets = targets
        self.starts = starts  # before anything is read; None where no lane starts from nothing
        self.lanes = lanes  # which of all lanes these are
        self.count = count  # targets in this batch
        self.total = total  # targets in the whole optimiser step: all micro-batches of all ranks
        self.warmup_chunks = warmup_chunks  # oldest first
        self.advance = advance  # how many readings, its history's and then its own, the next batch no longer reads
        self.fingerprint = 0  # checksum of the plan of the whole step

    @property
    def totals(self) -> dict[str, int]:
        """Targets of each differentiated part in the whole optimiser step."""
        return {"loss": self.total}

    def to(self, device: torch.device, non_blocking: bool = False) -> StreamBatch:
        """The same batch on another device."""

        def moved(tensor: Tensor | None) -> Tensor | None:
            return tensor if tensor is None else tensor.to(device, non_blocking=non_blocking)

        there = copy.copy(self)
        there.tokens, there.targets, there.starts = map(moved, (self.tokens, self.targets, self.starts))  # type: ignore
        there.warmup_chunks = tuple(Past(*map(moved, past)) for past in self.warmup_chunks)  # type: ignore[arg-type]
        return there


class Stream:
    """Cuts batches from a corpus; the first token of a document is predicted from the start token."""

    def __init__(self, tokens: np.ndarray, documents: np.ndarray, start: int) -> None:
        """`tokens` (n,) of all documents end to end, the offsets of the documents with the end, the start token."""
        self.tokens = tokens
        self.documents = documents
        self.start = start

    def batch(self, chunk: Chunk, lanes: slice) -> StreamBatch:
        """The share of a chunk that belongs to `lanes`."""
        first, *others = (*chunk.warmup_chunks, chunk)
        forgotten = [_marked(part.starts[lanes]) for part in others]
        pasts = (self._read(part, lanes)[0] for part in chunk.warmup_chunks)
        tokens, targets = self._read(chunk, lanes)
        return StreamBatch(
            tokens=tokens,
            targets=targets,
            starts=_marked(first.starts[lanes]),
            lanes=lanes,
            count=int(chunk.count[lanes].sum()),
            total=int(chunk.count.sum()),
            warmup_chunks=tuple(map(Past, pasts, forgotten)),
            advance=chunk.advance,
        )

    def _read(self, part: Chunk, lanes: slice) -> tuple[Tensor, Tensor]:
        """Tokens in and targets (B, T) of what these lanes read in one go."""
        begin, count = part.begin[lanes], part.count[lanes]
        time = np.arange(max(int(count.max()), 1))
        index = begin[:, None] + time  # (B, T)
        real = time < count[:, None]
        index = np.where(real, index, 0)
        before = self.tokens[np.maximum(index - 1, 0)].astype(np.int64)
        # The document that a token stands in begins at that token: nothing in its document came before it.
        place = np.searchsorted(self.documents, index, side="right") - 1
        tokens = np.where(self.documents[place] == index, self.start, before)
        targets = np.where(real, self.tokens[index].astype(np.int64), IGNORED)
        return torch.from_numpy(tokens), torch.from_numpy(targets)


def _marked(lanes: np.ndarray) -> Tensor | None:
    """Which lanes these are (B,), or None where it is none."""
    return torch.from_numpy(lanes) if lanes.any() else None


class EvalLoader:
    """Every token of a split exactly once: `batch_size` lanes at a time, each from its start to its end."""

    def __init__(
        self, stream: Stream, plan: StreamPlan, *, batch_size: int | None, share: tuple[int, int] = (1, 0)
    ) -> None:
        """`share`: the number of processes, and which of them this is: each reads its share of the lanes."""
        self.stream = stream
        self.plan = plan
        self.share = share
        self.groups = -(-plan.lanes // (batch_size or plan.lanes))

    def __iter__(self) -> Iterator[StreamBatch]:
        for group in range(self.groups):
            together = deal(self.plan.lanes, self.groups, group)
            mine = deal(together.stop - together.start, *self.share)
            lanes = slice(together.start + mine.start, together.start + mine.stop)
            for step in range(self.plan.steps if mine.start < mine.stop else 0):
                yield self.stream.batch(self.plan.chunk(0, step), lanes)

    def __len__(self) -> int:
        return self.groups * self.plan.steps
