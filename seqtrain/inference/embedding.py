"""Embeddings: one vector per text, pooled from a model's hidden states, and search for the nearest texts."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqtrain.data.batching.examples import by_length, padded
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, can_encode, name_of
from seqtrain.tasks.base import Task
from seqtrain.tasks.output import TextPool, pool_text


@runtime_checkable
class HasVectors(Protocol):
    """A task that trains text vectors."""

    text_pool: TextPool  # pooling of hidden states to a vector


def pool_of(task: Task) -> TextPool:
    """Return the default pooling of a run's vectors: the task's own, else the mean."""
    return task.text_pool if isinstance(task, HasVectors) else "mean"


def check_pool(model: SequenceModel, pool: TextPool) -> None:
    """Raise UserError if the model does not support this pooling."""
    name = name_of(model)
    if not can_encode(model):
        raise UserError(
            f"embed: model={name} has no hidden states of a text alone; use a run of a model with an encoder, or "
            "without a decoder"
        )
    if pool != "cls":
        return
    if Capability.UNCONDITIONAL not in model.capabilities:  # its encoder reads sources without a first special token
        raise UserError("--pool cls: a source has no special token before it; use mean or last")
    if Capability.CAUSAL in model.capabilities:
        raise UserError(f"--pool cls: the first position of model={name} sees no later token; use mean or last")


@torch.no_grad()
def embed(
    model: SequenceModel, texts: Sequence[np.ndarray], *, before: Sequence[int], after: Sequence[int], pool: TextPool
) -> Float[Tensor, "n D"]:
    """Compute one vector per text.

    Args:
        model: a model in evaluation mode.
        texts: token ids of each text; at least one.
        before: special tokens before each text.
        after: special tokens after each text.
        pool: "mean" over the text's own positions; "mean_all" also over `before` and `after`; "last": the last
            position, `after` included; "cls": the first position.

    Returns:
        The vectors (n, D), in the order of the texts, on the CPU.
    """
    rows = [np.concatenate([before, text, after]).astype(np.int64) for text in texts]
    like = next(model.parameters())
    vectors = torch.zeros(len(rows), model.dim, dtype=like.dtype)
    for lanes in by_length(rows):
        tokens, lengths = padded([rows[lane] for lane in lanes])  # of similar lengths, to need little padding
        tokens, lengths = tokens.to(like.device), lengths.to(like.device)
        hidden = model.encode(tokens, lengths)
        vectors[lanes] = pool_text(hidden, lengths, pool, len(before), len(after)).to(vectors)
    return vectors


class TopK:
    """The `count` added texts with the largest cosine similarity to a query; ties go to the text added first."""

    def __init__(self, query: Float[Tensor, " D"], count: int) -> None:
        self.query = _unit(query.double().unsqueeze(0))[0]
        self.count = count
        self.best: list[tuple[float, Any]] = []

    def add(self, vectors: Float[Tensor, "n D"], texts: Sequence[Any]) -> None:
        """Add candidate vectors, each with its text or any other item, and keep the best ones."""
        scores = (_unit(vectors.double()) @ self.query).tolist()
        candidates = [*self.best, *zip(scores, texts, strict=True)]
        # Sorting is stable, also in reverse, so ties keep their order.
        self.best = sorted(candidates, key=itemgetter(0), reverse=True)[: self.count]


def _unit(vectors: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
    """Scale vectors to length 1. A vector of zeros is unchanged, so its similarity to all others is 0."""
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo(vectors.dtype).tiny)
