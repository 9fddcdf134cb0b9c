"""Examples of translation: pairs of a source (text or values) and a target text; each side is padded separately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from seqtrain.data.batching.examples import ExampleBatch, Examples, SeriesInputs, padded
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.values.reading import Reading
from seqtrain.errors import UserError


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
