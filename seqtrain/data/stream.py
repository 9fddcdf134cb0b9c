"""Batches of a stream: what the plan says, cut from the tokenised corpus."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from seqtrain.data.plan import Chunk, StreamPlan, deal

IGNORED = -100
"""Target of a padded position."""


class StreamBatch:
    """A chunk of time of some lanes: `tokens` (B, T) in, `targets` (B, T) to predict, `starts` (B,) fresh lanes."""

    def __init__(self, *, tokens: Tensor, targets: Tensor, starts: Tensor | None, lanes: slice, count: int, total: int):
        self.tokens = tokens
        self.targets = targets
        self.starts = starts  # None where no lane starts from nothing
        self.lanes = lanes  # which of all lanes these are
        self.count = count  # targets in this batch
        self.total = total  # targets in the whole optimiser step: all micro-batches of all ranks

    @property
    def totals(self) -> dict[str, int]:
        """Targets of each differentiated part in the whole optimiser step."""
        return {"loss": self.total}

    def to(self, device: torch.device, non_blocking: bool = False) -> StreamBatch:
        """The same batch on another device."""
        tensors = {
            name: value if value is None else value.to(device, non_blocking=non_blocking)
            for name, value in (("tokens", self.tokens), ("targets", self.targets), ("starts", self.starts))
        }
        return StreamBatch(**tensors, lanes=self.lanes, count=self.count, total=self.total)  # type: ignore[arg-type]


class Stream:
    """Cuts batches from a corpus; the first token of a document is predicted from the start token."""

    def __init__(self, tokens: np.ndarray, documents: np.ndarray, start: int) -> None:
        """`tokens` (n,) of all documents end to end, the offsets of the documents with the end, the start token."""
        self.tokens = tokens
        self.documents = documents
        self.start = start

    def batch(self, chunk: Chunk, lanes: slice) -> StreamBatch:
        """The share of a chunk that belongs to `lanes`."""
        begin, count, starts = (part[lanes] for part in chunk)
        time = np.arange(max(int(count.max()), 1))
        index = begin[:, None] + time  # (B, T)
        real = time < count[:, None]
        index = np.where(real, index, 0)
        before = self.tokens[np.maximum(index - 1, 0)].astype(np.int64)
        # The document that a token stands in begins at that token: nothing in its document came before it.
        place = np.searchsorted(self.documents, index, side="right") - 1
        tokens = np.where(self.documents[place] == index, self.start, before)
        targets = np.where(real, self.tokens[index].astype(np.int64), IGNORED)
        return StreamBatch(
            tokens=torch.from_numpy(tokens),
            targets=torch.from_numpy(targets),
            starts=torch.from_numpy(starts) if starts.any() else None,
            lanes=lanes,
            count=int(count.sum()),
            total=int(chunk.count.sum()),
        )


class EvalLoader:
    """Every token of a split exactly once: `batch_size` lanes at a time, each from its start to its end."""

    def __init__(self, stream: Stream, plan: StreamPlan, *, batch_size: int | None) -> None:
        self.stream = stream
        self.plan = plan
        self.groups = -(-plan.lanes // (batch_size or plan.lanes))

    def __iter__(self) -> Iterator[StreamBatch]:
        for group in range(self.groups):
            lanes = deal(self.plan.lanes, self.groups, group)
            for step in range(self.plan.steps):
                yield self.stream.batch(self.plan.chunk(0, step), lanes)

    def __len__(self) -> int:
        return self.groups * self.plan.steps
