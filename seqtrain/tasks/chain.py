"""Linear-chain conditional random field: scores of label sequences instead of single labels (Lafferty et al. 2001)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqtrain.tasks.metrics.labels import ENDS, OUTSIDE, is_bio


class Chain(nn.Module):
    """Scores of neighbouring labels, and of the first and last label, added to the scores of each single label.

    If labels are BIO, sequences that break a span have the score -inf, so the partition and the best path exclude them.
    All methods take `emissions`, the scores by word, and `lengths`, the number of words of each lane.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        size = len(labels)
        # Zeros: before training the chain has no preference, and it draws no random number.
        self.transitions = nn.Parameter(torch.zeros(size, size))  # from the row's label to the column's
        self.first = nn.Parameter(torch.zeros(size))
        self.last = nn.Parameter(torch.zeros(size))
        self.barred: Tensor
        # The last row is for the start of a sequence. It follows from the labels, so it is not stored in checkpoints.
        self.register_buffer("barred", torch.tensor(barred_steps(labels)), persistent=False)

    def loss(
        self, emissions: Float[Tensor, "B N V"], labels: Int[Tensor, "B N"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, ""]:
        """Return minus the summed log-probabilities of the label sequences, in nats."""
        return (self.log_partition(emissions, lengths) - self.score(emissions, labels, lengths)).sum()

    def score(
        self, emissions: Float[Tensor, "B N V"], labels: Int[Tensor, "B N"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Return the score of one label sequence of each lane; 0 if the lane has no word."""
        between, first, last = self._scores(emissions)
        inside = _inside(emissions, lengths)
        scores = emissions.gather(2, labels.unsqueeze(2)).squeeze(2).where(inside, 0).sum(1)
        steps = between[labels[:, :-1], labels[:, 1:]].where(inside[:, 1:], 0).sum(1)
        final = labels.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        return scores + steps + (first[labels[:, 0]] + last[final]).where(lengths > 0, 0)

    def log_partition(self, emissions: Float[Tensor, "B N V"], lengths: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return the log of the summed exponentiated scores of all label sequences; 0 if the lane has no word."""
        between, first, last = self._scores(emissions)
        inside = _inside(emissions, lengths)
        alpha = first + emissions[:, 0]  # over all sequences up to here that end in each label
        for word in range(1, emissions.shape[1]):
            longer = alpha.unsqueeze(2) + between
            dead = (longer == -math.inf).all(1)  # labels that no sequence reaches here; the sum would have no gradient
            summed = longer.masked_fill(dead.unsqueeze(1), 0).logsumexp(1).masked_fill(dead, -math.inf)
            alpha = (summed + emissions[:, word]).where(inside[:, word, None], alpha)
        return (alpha + last).logsumexp(1).where(lengths > 0, 0)

    @torch.no_grad()
    def best(self, emissions: Float[Tensor, "B N V"], lengths: Int[Tensor, " B"]) -> Int[Tensor, "B N"]:
        """Return the label sequence with the highest score (Viterbi), padded with the last label of each lane."""
        between, first, last = self._scores(emissions)
        inside = _inside(emissions, lengths)
        score = first + emissions[:, 0]
        stay = torch.arange(score.shape[1], device=score.device).expand_as(score)
        origins = []
        for word in range(1, emissions.shape[1]):
            longer, origin = (score.unsqueeze(2) + between).max(1)
            goes_on = inside[:, word, None]
            score = (longer + emissions[:, word]).where(goes_on, score)
            origins.append(origin.where(goes_on, stay))
        path = [(score + last).argmax(1, keepdim=True)]
        for origin in reversed(origins):
            path.append(origin.gather(1, path[-1]))
        return torch.cat(path[::-1], 1)

    def marginals(self, emissions: Float[Tensor, "B N V"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B N V"]:
        """Return the probability of each label of each word, summed over all sequences."""
        with torch.enable_grad():  # they are the derivatives of the log partition
            emissions = emissions.detach().requires_grad_()
            return torch.autograd.grad(self.log_partition(emissions, lengths).sum(), emissions)[0]

    def _scores(
        self, emissions: Float[Tensor, "B N V"]
    ) -> tuple[Float[Tensor, "V V"], Float[Tensor, " V"], Float[Tensor, " V"]]:
        """Return transitions, first and last scores in the precision of the emissions."""
        barred = self.barred.to(emissions.dtype)
        between, first = self.transitions.to(barred) + barred[:-1], self.first.to(barred) + barred[-1]
        return between, first, self.last.to(barred)


def pack(asked: Bool[Tensor, "B T"]) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"]]:
    """Return the positions of the words with a target, in order and right-padded, and their number per lane."""
    lengths = asked.sum(1)
    order = (~asked).to(torch.uint8).argsort(dim=1, stable=True)
    return order[:, : max(int(lengths.max()), 1)], lengths


def _inside(emissions: Float[Tensor, "B N V"], lengths: Int[Tensor, " B"]) -> Bool[Tensor, "B N"]:
    return torch.arange(emissions.shape[1], device=lengths.device) < lengths.unsqueeze(1)


def barred_steps(labels: Sequence[str]) -> list[list[float]]:
    """Return 0 where a label may follow another and -inf elsewhere; the last row is for the start of a sequence."""
    before = [*labels, OUTSIDE]
    if not is_bio(labels):
        return [[0.0] * len(labels) for _ in before]
    # With E- and S- labels an open span must continue; without them it may end anywhere.
    has_ends = any(label.startswith(("E-", "S-")) for label in labels)
    table = []
    for one in before:
        prefix, _, kind = one.partition("-")
        is_open = prefix != OUTSIDE and prefix not in ENDS
        row = []
        for label in labels:
            goes_on = label[:2] in ("I-", "E-")
            follows = is_open and label.partition("-")[2] == kind
            row.append(-math.inf if (goes_on and not follows) or (has_ends and is_open and not goes_on) else 0.0)
        table.append(row)
    # A text may be cut at data.max_length, so a span may be open at the end.
    return table
