"""Embeddings: one vector of each text, pooled from a model's hidden states, and the texts nearest to another."""

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
    """A task that is trained for the vectors of texts."""

    text_pool: TextPool  # how it pools hidden states to a vector


def pool_of(task: Task) -> TextPool:
    """Return the pooling that a run's vectors have where none is asked for: the task's own, else the mean."""
    return task.text_pool if isinstance(task, HasVectors) else "mean"


def check_pool(model: SequenceModel, pool: TextPool) -> None:
    """Raise UserError if the model cannot give this vector of a text."""
    name = name_of(model)
    if not can_encode(model):
        raise UserError(
            f"embed: model={name} reads a text only to go on from it; take a run of a model that has an encoder, or no "
            "decoder"
        )
    if pool != "cls":
        return
    if Capability.UNCONDITIONAL not in model.capabilities:  # training put nothing before what its encoder reads
        raise UserError("--pool cls: before a source stands no token that could be its vector; use mean or last")
    if Capability.CAUSAL in model.capabilities:
        raise UserError(f"--pool cls: the first position of model={name} sees no later token; use mean or last")


@torch.no_grad()
def embed(
    model: SequenceModel, texts: Sequence[np.ndarray], *, before: Sequence[int], after: Sequence[int], pool: TextPool
) -> Float[Tensor, "n D"]:
    """Compute one vector per text.

    Args:
        model: in evaluation mode.
        texts: ids of each, at least one.
        before: tokens that are read before each text.
        after: tokens that are read after it.
        pool: mean of the text's own positions; mean_all of these and of `before` and `after`; last, where all has been
            read, `after` included; cls, the very first.

    Returns:
        The vectors (n, D), in the order of the texts, on the CPU.
    """
    rows = [np.concatenate([before, text, after]).astype(np.int64) for text in texts]
    like = next(model.parameters())
    vectors = torch.zeros(len(rows), model.dim, dtype=like.dtype)
    for lanes in by_length(rows):
        tokens, lengths = padded([rows[lane] for lane in lanes])  # of about one length, so that little is padding
        tokens, lengths = tokens.to(like.device), lengths.to(like.device)
        hidden = model.encode(tokens, lengths)
        vectors[lanes] = pool_text(hidden, lengths, pool, len(before), len(after)).to(vectors)
    return vectors


class TopK:
    """The texts whose vectors have the largest cosine with a query's, of as many as are added; of equals the first."""

    def __init__(self, query: Float[Tensor, " D"], count: int) -> None:
        self.query = _unit(query.double().unsqueeze(0))[0]
        self.count = count
        self.best: list[tuple[float, Any]] = []

    def add(self, vectors: Float[Tensor, "n D"], texts: Sequence[Any]) -> None:
        """Add candidate vectors, with any items that stand for their texts, and keep the best ones."""
        scores = (_unit(vectors.double()) @ self.query).tolist()
        candidates = [*self.best, *zip(scores, texts, strict=True)]
        # Sorting is stable, also in reverse: of equals the one that was added first stays first.
        self.best = sorted(candidates, key=itemgetter(0), reverse=True)[: self.count]


def _unit(vectors: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
    """Scale vectors to length 1. A vector of zeros is unchanged, so its similarity to all others is 0."""
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo(vectors.dtype).tiny)
