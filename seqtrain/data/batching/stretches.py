"""Documents cut into stretches that are read whole, for tasks that predict every token of them."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from seqtrain.data.batching.documents import Stretches
from seqtrain.data.batching.examples import ExampleBatch, Examples, padded
from seqtrain.data.batching.lengths import StretchLengths
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.corpus import Corpus
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import UserError


class StretchExamples(Examples):
    """`start, stretch, separator`; the targets (B, T) are the tokens of text, each at its own position.

    Every token of the split is in one stretch, so it is a target once.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, *, max_length: int) -> None:
        """Cut the stretches; raise UserError if `max_length` leaves no room for text."""
        if max_length < 3:
            raise UserError(f"data.max_length={max_length}: must be at least 3, as the special tokens count")
        self.tokens = corpus.tokens
        self.edges = np.array([tokenizer.start]), np.array([tokenizer.separator])
        self.stretches = Stretches(corpus.documents, max_length - 2)
        self.lengths = StretchLengths(self.stretches, 2)

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        return {"loss": int(self.stretches.find(index).count.sum())}

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> ExampleBatch:
        start, end = self.edges
        rows = []
        found = self.stretches.find(index)
        for begin, count in zip(found.begin.tolist(), found.count.tolist(), strict=True):
            text = self.tokens[begin : begin + count].astype(np.int64)
            rows.append(np.concatenate([start, text, end]))
        tokens, lengths = padded(rows)
        time = torch.arange(tokens.shape[1])
        is_text = (time > 0) & (time < lengths[:, None] - 1)
        return ExampleBatch(
            tokens=tokens,
            lengths=lengths,
            targets=torch.where(is_text, tokens, IGNORED),
            index=torch.from_numpy(index),
            count=int(lengths.sum()),
            totals=totals,
        )
