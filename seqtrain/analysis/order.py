"""Change of a model's output when the words of a text are permuted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqtrain.data.sources.base import Row
from seqtrain.inference.opened import Opened
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.pooling import pool
from seqtrain.tasks.predictors import Loaded

ROUNDING = 1e-9  # in float64 rounding gives 1e-15, order as the weakest reader sees it 1e-4 and more


@dataclass(frozen=True)
class Change:
    """The largest changes caused by a new word order."""

    pooled: float  # of the vector that the label is read from, as a share of its length
    last: float  # of the last hidden state, as a share of its length
    probability: float  # of a label

    @property
    def blind(self) -> bool:
        """True if there was no change beyond rounding."""
        return max(self.pooled, self.last, self.probability) < ROUNDING


def permuted(texts: Sequence[str], copies: int, seed: int) -> list[list[str]]:
    """Return for each text a group: the text itself, then `copies` copies with the words in random order.

    Args:
        texts: The texts.
        copies: Number of permuted copies of each.
        seed: Seed of the permutations.
    """
    generator = torch.Generator().manual_seed(seed)
    groups = []
    for text in texts:
        words = text.split()
        group = [text]
        for _ in range(copies):
            order = torch.randperm(len(words), generator=generator).tolist()
            group.append(" ".join(words[place] for place in order))
        groups.append(group)
    return groups


@torch.no_grad()
def change(opened: Opened, groups: Sequence[Sequence[str]]) -> Change:
    """Return the largest change between the first text of a group and any other in it.

    Args:
        opened: A run that gives one label to a text. It is converted to float64, which separates rounding from order.
        groups: Texts of the same words; all texts of a group have the same number of tokens.
    """
    # Wide numbers: in float32 a sum in another order differs by as much as a poor reader of order does.
    opened.model.double()
    opened.task.double()
    largest = [0.0, 0.0, 0.0]
    for group in groups:
        vectors = _read(opened, group)
        for place, vector in enumerate(vectors):
            differences = (vector[1:] - vector[:1]).norm(dim=1)
            if place < 2:  # hidden states have no unit of their own; probabilities do
                differences = differences / vector[0].norm()
            else:
                differences = (vector[1:] - vector[:1]).abs().amax(1)
            largest[place] = max(largest[place], differences.max().item())
    return Change(*largest)


def _read(opened: Opened, texts: Sequence[str]) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D"], Tensor]:
    """Return pooled vectors (B, D), last hidden states (B, D) and label probabilities for texts of one length."""
    task: Any = opened.task
    model: SequenceModel = opened.model
    loaded: Loaded = opened.loaded
    before, after = task.edges(loaded.tokenizer)
    rows = []
    for text in texts:
        rows.append([*before, *task.encode(loaded.tokenizer, text).tolist(), *after])
    tokens = torch.tensor(rows)
    lengths = torch.full((len(rows),), tokens.shape[1])
    pooled = task.pooled(model, tokens, lengths)
    last = pool(model.encode(tokens, lengths), lengths, "last")
    return pooled, last, task.logits(model, pooled).softmax(-1)


def accuracy(opened: Opened, rows: Sequence[Row]) -> float:
    """Return the share of rows whose label is the most likely one."""
    answers = opened.predictor("classify").predict([row["text"] for row in rows])
    right = 0
    for row, answer in zip(rows, answers, strict=True):
        right += row["label"] == answer["label"]
    return right / len(rows)
