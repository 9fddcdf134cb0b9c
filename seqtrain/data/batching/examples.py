"""Examples that a task makes from rows, in padded batches that the plan determines.

Pairs of a source (text or values) and a target text are padded side by side, each to its own length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from seqtrain.data.batching.example_plan import ExamplePlan, Lengths
from seqtrain.data.batching.plan import ExampleChunk, deal
from seqtrain.data.batching.stream import IGNORED, moved
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.values.reading import Reading
from seqtrain.data.values.series import SeriesSplit
from seqtrain.errors import UserError

Batch = TypeVar("Batch", bound="ExampleBatch")


@dataclass(kw_only=True)
class ExampleBatch:
    """A batch of right-padded examples; a task may add its own batch-first tensors."""

    warmup_chunks: ClassVar[tuple[()]] = ()  # nothing is read before an example
    tokens: Shaped[Tensor, "B T *F"]  # ids, or real values
    lengths: Int[Tensor, " B"]  # tokens of each example, without padding
    targets: Shaped[Tensor, "B ..."]  # one for each example, or for each position; IGNORED or NaN: no target
    index: Int[Tensor, " B"]  # indices of the examples in the split
    count: int  # tokens read, without padding
    totals: dict[str, int]  # targets of each differentiated part in the whole optimiser step
    fingerprint: int = 0  # checksum of the plan of the whole step
    num_targets: int = -1  # in this batch, at positions that are read; -1: count them

    def __post_init__(self) -> None:
        # Counted here, on the CPU, because counting during the step would wait for the GPU.
        if self.num_targets < 0:
            self.num_targets = _num_targets(self.targets, self.tokens.shape[1])

    def to(self: Batch, device: torch.device, non_blocking: bool = False) -> Batch:
        """Return the same batch on another device; `non_blocking` as in `stream.moved`."""
        there = {}
        for field in fields(self):  # includes the fields of a task
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                there[field.name] = moved(value, device, non_blocking)
        return replace(self, **there)

    def without_targets(self: Batch) -> Batch:
        """Return the same batch without targets, for a slice that has no examples."""
        return replace(self, targets=torch.full_like(self.targets, IGNORED), count=0, num_targets=0)


def _num_targets(targets: Shaped[Tensor, "B ..."], width: int) -> int:
    """Return the number of targets; of targets (B, U), count only the first `width` positions, which are read."""
    if targets.dim() == 2:
        targets = targets[:, :width]
    present = ~targets.isnan() if targets.is_floating_point() else targets != IGNORED
    return int(present.sum())


class Examples(ABC):
    """Examples of a split; each task has its own kind."""

    lengths: Int[np.ndarray, "n sides"] | Lengths  # tokens of each example on each separately padded side
    cut: int = 0  # number of examples that were truncated
    remark: str | None = None  # message to log before training

    @abstractmethod
    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        """Return the number of targets of each differentiated part in these examples in this epoch."""

    @abstractmethod
    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> ExampleBatch:
        """Return these examples as a batch; random choices depend only on (seed, epoch, example).

        Args:
            index: Indices of the examples (B,).
            epoch: The epoch.
            totals: Targets of each differentiated part in the whole optimiser step.
        """

    def batch(self, chunk: ExampleChunk, lanes: slice) -> ExampleBatch:
        """Return the examples of a step in these lanes; if there are none, a batch without targets."""
        totals = self.totals(chunk.examples, chunk.epoch)
        mine = chunk.examples[lanes]
        if len(mine):
            return self.collate(mine, chunk.epoch, totals)
        # A process without examples must still take part in the step: every process waits for the gradients of all.
        return self.collate(chunk.examples[:1], chunk.epoch, totals).without_targets()


class TextExamples(Examples):
    """`start, tokens..., separator` of each text, or the values of each series; longer ones are truncated at their end.

    A subclass provides the targets.
    """

    def __init__(
        self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, dtype: torch.dtype = torch.float32
    ) -> None:
        """Set the rows of a split. `dtype`: type of real values, if series are read."""
        self.series: SeriesInputs | None = None
        if rows.series is not None:
            assert preprocessor.series is not None
            wide = np.float64 if dtype == torch.float64 else np.float32
            self.series = SeriesInputs(rows.series, Reading(rows.series.series, preprocessor.series, wide), max_length)
            self.longest = max_length
            self.lengths = np.minimum(self.series.lengths, max_length)[:, None]
            self.cut = int((self.series.lengths > max_length).sum())
            return
        self.text = rows.columns["text"]
        self.edges = np.array([preprocessor.tokenizer.start]), np.array([preprocessor.tokenizer.separator])
        self.longest = max_length - 2
        self.lengths = np.minimum(self.text.lengths, self.longest)[:, None] + 2
        self.cut = int((self.text.lengths > self.longest).sum())

    @abstractmethod
    def targets(self, index: Int[np.ndarray, " B"]) -> Shaped[Tensor, "B ..."]:
        """Return the targets of these examples, or of each position; IGNORED: no target."""

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        return {"loss": len(index)}

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> ExampleBatch:
        tokens, lengths = padded([self._sequence(i) for i in index])
        return ExampleBatch(
            tokens=tokens,
            lengths=lengths,
            targets=self.targets(index),
            index=torch.from_numpy(index),
            count=int(lengths.sum()),
            totals=totals,
        )

    def _sequence(self, number: int) -> Shaped[np.ndarray, " T *F"]:
        """Return the input of one example, without padding."""
        if self.series is not None:
            return self.series.features(number)
        start, end = self.edges
        return np.concatenate([start, self.text[number][: self.longest], end])


class SeriesInputs:
    """Whole series of a split, as inputs."""

    def __init__(self, split: SeriesSplit, reading: Reading, longest: int) -> None:
        """Find the series that have rows in the split. `longest`: maximum rows to read; later rows are ignored."""
        has_rows = split.end > split.begin
        self.reading = reading
        self.begin = split.begin[has_rows]
        self.lengths = (split.end - split.begin)[has_rows]
        self.longest = longest

    def features(self, number: int) -> Float[np.ndarray, "T F"]:
        """Return the features of one series."""
        rows = self.begin[number] + np.arange(min(self.lengths[number], self.longest))
        return self.reading.observed(rows[None])[0]


class ExampleLoader:
    """Every example of a split exactly once, in the order of the plan, or this process's slice of each step."""

    def __init__(self, examples: Examples, plan: ExamplePlan, *, world: int = 1, rank: int = 0) -> None:
        """Set the slice. `world`: number of processes; `rank`: index of this one."""
        self.examples = examples
        self.plan = plan
        self.world = world
        self.rank = rank

    def __iter__(self) -> Iterator[ExampleBatch]:
        for step in range(self.plan.steps):
            chunk = self.plan.chunk(0, step)
            mine = deal(chunk.lanes, self.world, self.rank)
            if mine.start < mine.stop:  # empty slices are skipped: no process waits for gradients here
                yield self.examples.batch(chunk, mine)

    def __len__(self) -> int:
        return self.plan.steps


def padded(rows: list[Shaped[np.ndarray, " _ *F"]]) -> tuple[Shaped[Tensor, "B T *F"], Int[Tensor, " B"]]:
    """Return rows of tokens, or of values, right-padded with 0, (B, T) or (B, T, F), and their lengths, (B,)."""
    lengths = np.array(list(map(len, rows)), dtype=np.int64)
    kind = rows[0].dtype if rows[0].dtype.kind == "f" else np.int64
    whole = np.zeros((len(rows), max(int(lengths.max()), 1), *rows[0].shape[1:]), dtype=kind)
    # A mask selects positions row by row, which is the order of the concatenated rows.
    whole[np.arange(whole.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(whole), torch.from_numpy(lengths)


def by_length(rows: Sequence[Shaped[np.ndarray, " _ *F"]], lanes: int = 32) -> Iterator[list[int]]:
    """Yield the indices of `lanes` rows to read together, of similar length, so that there is little padding."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for begin in range(0, len(order), lanes):
        yield order[begin : begin + lanes]


@dataclass(kw_only=True)
class TranslationBatch(ExampleBatch):
    """Sources as `tokens`, each with a separator at its end; `targets` (B, U) are the target's tokens and the end."""

    target_tokens: Int[Tensor, "B U"]  # the start and the target's tokens
    unpadded: bool  # True if no source is padded
    references: Callable[[], list[str]]  # returns the original target texts, for evaluation


class TranslationExamples(Examples):
    """`source..., separator`, or values, and `start, target..., end`; a longer side is truncated at its end."""

    def __init__(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int) -> None:
        if max_length < 4:
            raise UserError(f"data.max_length={max_length}: must be at least 4, two tokens for each side")
        self.rows = rows
        self.written = rows.columns["target"]
        self.separator = np.array([preprocessor.tokenizer.separator])
        self.start = np.array([preprocessor.target_tokenizer.start])
        self.longest = max_length // 2 - 1
        if rows.series is not None:
            assert preprocessor.series is not None
            reading = Reading(rows.series.series, preprocessor.series)
            self.series = SeriesInputs(rows.series, reading, self.longest + 1)
            read = self.series.lengths - 1  # the last step takes the place of a text's separator
        else:
            self.text = rows.columns["source"]
            read = self.text.lengths
        whole = np.stack([read, self.written.lengths], 1)  # (N, 2) without separator and end
        self.lengths = np.minimum(whole, self.longest) + 1
        self.cut = int((whole > self.longest).any(1).sum())  # rows

    @cached_property
    def texts(self) -> list[str]:
        """Original target texts, not truncated."""
        return self.rows.texts("target")

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        return {"loss": int(self.lengths[index, 1].sum())}

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> TranslationBatch:
        sources, inputs, answers = [], [], []
        for row in index.tolist():
            target = self.written[row][: self.longest]
            sources.append(self._source(row))
            inputs.append(np.append(self.start, target))
            answers.append(np.append(target, self.start))  # the start token is also the end token
        tokens, lengths = padded(sources)
        target_tokens, target_lengths = padded(inputs)
        targets, _ = padded(answers)
        real = torch.arange(targets.shape[1]) < target_lengths.unsqueeze(1)
        num_targets = int(target_lengths.sum())
        return TranslationBatch(
            tokens=tokens,
            lengths=lengths,
            targets=targets.masked_fill(~real, IGNORED),
            index=torch.from_numpy(index),
            count=int(lengths.sum()) + num_targets,
            totals=totals,
            target_tokens=target_tokens,
            num_targets=num_targets,
            unpadded=bool((lengths == tokens.shape[1]).all()),
            references=partial(self.references, index),  # not a lambda: batches of data.workers are pickled
        )

    def _source(self, row: int) -> Shaped[np.ndarray, " S *F"]:
        if self.rows.series is not None:
            return self.series.features(row)
        return np.append(self.text[row][: self.longest], self.separator)

    def references(self, index: Int[np.ndarray, " B"]) -> list[str]:
        """Return the original target texts of some examples."""
        return [self.texts[row] for row in index]
