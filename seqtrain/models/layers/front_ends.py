"""Front ends: the layer between data and model, from tokens (B, T) or values (B, T, F) to (B, T, E)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F


class TokenEmbedding(nn.Module):
    """A learned vector per token: `vocab_size` tokens of text, then `specials` special tokens.

    The first special is `start`, which as a target means the end; the second is `separator`, the third `mask`.
    With `embed_dim` the vectors have that width, and one shared map widens them to `dim`: the table is factorised
    (Lan et al. 2020, arXiv 1909.11942).
    """

    projection: Float[Tensor, "E N"] | None

    def __init__(self, *, vocab_size: int, dim: int, specials: int = 1, embed_dim: int | None = None) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.start = vocab_size
        # Set even if a task has fewer special tokens: its batches then never contain this one.
        self.separator = vocab_size + 1
        self.mask = vocab_size + 2
        # So that a tied head's scores for a hidden state of unit scale start with unit variance.
        width = dim if embed_dim is None else embed_dim
        self.weight = nn.Parameter(torch.empty(vocab_size + specials, width).normal_(std=dim**-0.5))
        # A bare parameter, because models reinitialise the linear maps that they find; it keeps the scale of the
        # vectors.
        matrix = None if embed_dim is None else nn.Parameter(torch.empty(dim, width).normal_(std=width**-0.5))
        self.register_parameter("projection", matrix)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        vectors = F.embedding(tokens, self.weight)
        return vectors if self.projection is None else F.linear(vectors, self.projection)

    def logits(self, hidden: Float[Tensor, "... E"], *, end: bool = False) -> Float[Tensor, "... V"]:
        """Score the tokens with the embedding's own weights (tied head): unnormalised log-probabilities.

        `end` adds one last score: that of the end, which shares the start's vector.
        """
        if self.projection is not None:
            hidden = hidden @ self.projection
        # The start is the first special token, after all tokens of text, and no task predicts the others.
        return F.linear(hidden, self.weight[: self.vocab_size + end])


class ValueProjection(nn.Module):
    """Real values as vectors: one linear map of the `num_features` values of a time step, or of a patch of them.

    Args:
        num_features: Number of values that are read at once.
        dim: E.
        masked: For each channel of a step, True if a mask and the logarithm of 1 + the steps since it was seen follow
            the channels: first all masks, then all times.
        patch: Number of time steps that are read as one.
        as_tokens: True to initialise at the scale of token vectors, which an encoder-decoder multiplies by sqrt(D).
    """

    def __init__(
        self, *, num_features: int, dim: int, masked: Sequence[bool] = (), patch: int = 1, as_tokens: bool = False
    ) -> None:
        super().__init__()
        self.masked, self.patch = tuple(masked), patch
        self.linear = nn.Linear(num_features, dim)
        if as_tokens:
            with torch.no_grad():
                self.linear.weight.mul_(dim**-0.5)
                self.linear.bias.mul_(dim**-0.5)

    def blank(self, batch: int, length: int) -> Float[Tensor, "B T F"]:
        """Return zeros of this shape, as valid input, on the device of the weights."""
        weight = self.linear.weight
        return torch.zeros(batch, length, self.linear.in_features, dtype=weight.dtype, device=weight.device)

    def forward(self, values: Float[Tensor, "B T F"]) -> Float[Tensor, "B T E"]:
        return self.linear(values.to(self.linear.weight.dtype))


def filtered_last(
    embed: nn.Module, dropout: nn.Dropout, inputs: Shaped[Tensor, "B T *F"], filters: Float[Tensor, "K D"]
) -> Float[Tensor, "B 1 D"]:
    """Return the sum of the last K inputs as vectors, each unit weighted by its own filter; T may be less than K.

    The filter of each unit and a linear map of all features commute. So values are filtered first, as one matrix
    product, and no value is expanded to D numbers.
    """
    inputs = inputs[:, -len(filters) :]
    filters = filters[len(filters) - inputs.shape[1] :]
    if not isinstance(embed, ValueProjection) or (dropout.training and dropout.p > 0):
        return (dropout(embed(inputs)) * filters).sum(1, keepdim=True)
    sums = inputs.to(filters.dtype).transpose(1, 2) @ filters  # (B, F, D)
    lifted = (sums * embed.linear.weight.t()).sum(1, keepdim=True)
    return lifted + embed.linear.bias * filters.sum(0)
