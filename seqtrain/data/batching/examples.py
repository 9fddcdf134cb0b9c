"""Examples: what a task makes of rows, cut into padded batches by the plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from seqtrain.data.batching.plan import ExamplePlan, Picked, deal
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows


@dataclass(kw_only=True)
class ExampleBatch:
    """Some examples, right-padded; a task adds tensors of its own, batch-first."""

    warmup_chunks: ClassVar[tuple[()]] = ()  # nothing is read before an example
    tokens: Tensor  # (B, T)
    lengths: Tensor  # (B,) real tokens of each
    targets: Tensor  # (B,), or (B, T); IGNORED where there is none
    index: Tensor  # (B,) which examples of the split these are
    count: int  # tokens read, padding apart
    totals: dict[str, int]  # targets of each differentiated part in the whole optimiser step
    fingerprint: int = 0  # checksum of the plan of the whole step

    def to(self, device: torch.device, non_blocking: bool = False) -> Self:
        """The same batch on another device."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {k: v.to(device, non_blocking=non_blocking) for k, v in mine.items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    def without_targets(self) -> Self:
        """The same batch with no target: what a share without examples reads."""
        return replace(self, targets=torch.full_like(self.targets, IGNORED), count=0)


class Examples(ABC):
    """The examples of a split; each task has its own kind."""

    lengths: np.ndarray  # (n, k) int64, tokens of each example on each side that is padded by itself
    cut: int = 0  # examples that were longer than they may be
    remark: str | None = None  # what else is said of them before training

    @abstractmethod
    def totals(self, index: np.ndarray, epoch: int) -> dict[str, int]:
        """Targets of each differentiated part in these examples in this epoch."""

    @abstractmethod
    def collate(self, index: np.ndarray, epoch: int, totals: dict[str, int]) -> ExampleBatch:
        """These examples as a batch; what is drawn at random is a function of (seed, epoch, example)."""

    def batch(self, picked: Picked, share: slice) -> ExampleBatch:
        """The share of a step; where it holds no example, one that has no target."""
        totals = self.totals(picked.examples, picked.epoch)
        mine = picked.examples[share]
        if len(mine):
            return self.collate(mine, picked.epoch, totals)
        return self.collate(picked.examples[:1], picked.epoch, totals).without_targets()


class TextExamples(Examples):
    """`start, tokens..., separator` of each text, of a longer one the first tokens; a subclass gives the targets."""

    def __init__(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int) -> None:
        self.text = rows.columns["text"]
        self.edges = np.array([preprocessor.tokenizer.start]), np.array([preprocessor.tokenizer.separator])
        self.longest = max_length - 2
        self.lengths = np.minimum(self.text.lengths, self.longest)[:, None] + 2
        self.cut = int((self.text.lengths > self.longest).sum())

    @abstractmethod
    def targets(self, index: np.ndarray) -> Tensor:
        """Targets of these examples: (B,), or (B, T) where each position has one, IGNORED where it has none."""

    def totals(self, index: np.ndarray, epoch: int) -> dict[str, int]:
        return {"loss": len(index)}

    def collate(self, index: np.ndarray, epoch: int, totals: dict[str, int]) -> ExampleBatch:
        start, end = self.edges
        tokens, lengths = padded([np.concatenate([start, self.text[i][: self.longest], end]) for i in index])
        return ExampleBatch(
            tokens=tokens,
            lengths=lengths,
            targets=self.targets(index),
            index=torch.from_numpy(index),
            count=int(lengths.sum()),
            totals=totals,
        )


class ExampleLoader:
    """Every example of a split exactly once, in the order of the plan, or this process's share of each step."""

    def __init__(self, examples: Examples, plan: ExamplePlan, *, share: tuple[int, int] = (1, 0)) -> None:
        """`share`: the number of processes, and which of them this is."""
        self.examples = examples
        self.plan = plan
        self.share = share

    def __iter__(self) -> Iterator[ExampleBatch]:
        for step in range(self.plan.steps):
            picked = self.plan.chunk(0, step)
            mine = deal(picked.lanes, *self.share)
            if mine.start < mine.stop:
                yield self.examples.batch(picked, mine)

    def __len__(self) -> int:
        return self.plan.steps


def padded(rows: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Rows of tokens side by side, right-padded with 0: (B, T), and their lengths (B,)."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    whole = np.zeros((len(rows), max(int(lengths.max()), 1)), dtype=np.int64)
    whole[np.arange(whole.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(whole), torch.from_numpy(lengths)


def by_length(rows: Sequence[np.ndarray], lanes: int = 32) -> Iterator[list[int]]:
    """Which rows to read together: `lanes` at a time, of like length, so that little is padded."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for begin in range(0, len(order), lanes):
        yield order[begin : begin + lanes]
