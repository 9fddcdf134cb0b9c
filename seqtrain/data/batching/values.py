"""Batches of series: a stream that carries state, or windows that are read independently."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqtrain.data.batching.examples import ExampleBatch, Examples
from seqtrain.data.batching.plan import Chunk
from seqtrain.data.batching.stream import Stream, StreamBatch
from seqtrain.data.token_store.tokens import Pages
from seqtrain.data.values.reading import Reading, Targets
from seqtrain.data.values.series import SeriesSplit
from seqtrain.errors import UserError


class SeriesStream(Stream):
    """Batches of series; the next `horizon` values are predicted from each position."""

    def __init__(self, split: SeriesSplit, reading: Reading, *, horizon: int, context: int) -> None:
        """Set the series.

        Args:
            split: The rows that are predicted.
            reading: Features and targets of rows.
            horizon: Number of rows that are predicted from each position.
            context: Rows before the split that are read to build up the state, and not predicted.

        Raises:
            UserError: No series has `horizon` rows in the split.
        """
        if horizon > (split.end - split.begin).max():
            raise UserError(
                f"task.horizon={horizon}: no series has {horizon} rows in this split; the longest has "
                f"{(split.end - split.begin).max():,}; lower task.horizon"
            )
        self.targets = Targets(reading, split, horizon)
        self.reading = reading
        # A series without rows in this split has no targets.
        has_rows = split.end > split.begin
        first = np.maximum(split.begin - context, split.series.offsets[:-1])[has_rows]
        self.documents = np.concatenate([[0], (split.end[has_rows] - first).cumsum()])
        self._pages = Pages(self.documents)
        self._shift = first - self.documents[:-1]  # from a position of the stream to a row of the table

    def rows(self, positions: Int[np.ndarray, "B T"]) -> Int[np.ndarray, "B T"]:
        """Return the row of the table at each position of the stream, (B, T)."""
        series = np.searchsorted(self.documents, positions, side="right") - 1
        return positions + self._shift[series]

    def batch(self, chunk: Chunk, lanes: slice) -> StreamBatch:
        batch = super().batch(chunk, lanes)
        rows, _ = self._places(chunk, lanes)
        batch.series = torch.from_numpy(self.reading.series_of(rows))
        batch.targets_at = (~batch.targets.isnan()).sum((0, 2, 3)).numpy()
        batch.num_targets = int(batch.targets_at.sum())
        # The mean over a step divides by the number of present values, however lanes are shared among processes.
        batch.total = max(batch.num_targets, 1)
        if len(rows) < len(chunk.count):
            rows, real = self._places(chunk, slice(None))
            batch.total = _at_least_one(~np.isnan(self.targets.of(rows)[real]))
        return batch

    def _places(self, reading: Chunk, lanes: slice) -> tuple[Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"]]:
        """Return the rows that these lanes read in one reading (B, T), and a mask of those that are not padding."""
        positions, real = self._positions(reading, lanes)
        return self.rows(positions), real

    def _read(self, reading: Chunk, lanes: slice) -> tuple[Float[Tensor, "B T F"], Float[Tensor, "B T H C"]]:
        rows, real = self._places(reading, lanes)
        targets = self.targets.of(rows)
        # Padding reads row 0, whose targets must not be counted.
        targets[~real] = np.nan
        return torch.from_numpy(self.reading.features(rows)), torch.from_numpy(targets)


@dataclass(kw_only=True)
class WindowBatch(ExampleBatch):
    """Windows of series as `tokens` (B, T, F), and the values after each as `targets` (B, 1, H, C)."""

    series: Int[Tensor, "B 1"]
    rows: Int[Tensor, " B"]  # index of the first predicted row in the table
    places: Int[Tensor, " B"]  # index of that row in its series
    # Features of each predicted row, with the true value before it; None if predicted rows are not read.
    ahead: Float[Tensor, "B H F"] | None

    def without_targets(self) -> WindowBatch:
        return replace(self, targets=torch.full_like(self.targets, torch.nan), count=0, num_targets=0)


class Windows(Examples):
    """All windows of `history` rows of a series and the `horizon` values after them; history may be in other splits."""

    def __init__(
        self,
        split: SeriesSplit,
        reading: Reading,
        *,
        history: int,
        horizon: int,
        patch: int = 1,
        reads_ahead: bool = False,
    ) -> None:
        """Find the windows of a split.

        Args:
            split: Rows of the split.
            reading: Features and targets of rows.
            history: Number of rows of a window.
            horizon: Number of predicted rows after it.
            patch: Number of rows that are read as one time step.
            reads_ahead: True to also read the rows that are predicted, one after another.

        Raises:
            UserError: No window fits into the split, or `history` is not a multiple of `patch`.
        """
        if history % patch:
            raise UserError(f"task.patch={patch}: must divide data.max_length={history}; change one of them")
        self.reading = reading
        self.targets = Targets(reading, split, horizon)
        self.history = history
        self.patch = patch
        self.reads_ahead = reads_ahead
        # The first predicted row has `history` rows before it; the horizon of the last one ends in the split.
        self._first = np.maximum(split.begin, split.series.offsets[:-1] + history)
        counts = np.maximum(split.end - horizon + 1 - self._first, 0)
        if not counts.sum():
            longest = int((split.end - split.begin).max())
            raise UserError(
                f"task.horizon={horizon}: no series has {history} rows (data.max_length) and {horizon} after them; the "
                f"longest has {longest:,} in this split; lower one of them"
            )
        self.begins = np.concatenate([[0], counts.cumsum()])
        # The first predicted row is already the last row of the window.
        self.num_read = history // patch + (horizon - 1 if reads_ahead else 0)
        # All windows have the same length, so batches have no padding, and one number is broadcast to all windows.
        self.lengths = np.broadcast_to(np.array(self.num_read), (int(counts.sum()), 1))
        self.left_out = int(((counts == 0) & (split.end > split.begin)).sum())
        self.remark = None
        if self.left_out:
            self.remark = f"{self.left_out:,} series are too short for a window of data.max_length and task.horizon"

    def rows(self, index: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """Return the first row (B,) that each of these windows predicts."""
        # side="right", because a series without windows begins where the next one does.
        series = np.searchsorted(self.begins, index, side="right") - 1
        return self._first[series] + index - self.begins[series]

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        return {"loss": _at_least_one(~np.isnan(self.targets.of(self.rows(index)[:, None])))}

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> WindowBatch:
        rows = self.rows(index)
        # The features of row i contain the value of row i-1, so the last row to read is the first predicted row.
        read = rows[:, None] + np.arange(1 - self.history, 1)
        features = self.reading.features(read)
        features = features.reshape(len(index), self.history // self.patch, -1)
        targets = torch.from_numpy(self.targets.of(rows[:, None]))
        ahead = None
        if self.reads_ahead:
            ahead = torch.from_numpy(self.reading.features(rows[:, None] + np.arange(self.targets.horizon)))
        series = self.reading.series_of(rows[:, None])
        return WindowBatch(
            tokens=torch.from_numpy(features),
            lengths=torch.full((len(index),), features.shape[1]),
            targets=targets,
            index=torch.from_numpy(index),
            count=len(index) * self.num_read,
            totals=totals,
            series=torch.from_numpy(series),
            rows=torch.from_numpy(rows),
            places=torch.from_numpy(rows - self.reading.series.offsets[series[:, 0]]),
            ahead=ahead,
        )


def _at_least_one(present: Bool[np.ndarray, "..."]) -> int:
    """Return the number of present values as a divisor of losses: at least 1, because a step may have no target."""
    return max(int(present.sum()), 1)
