"""chrF2: an F-score of character n-grams that weighs recall twice (Popović 2015), from sums over sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

ORDERS = 6
BETA = 2
STATISTICS = 3 * ORDERS


def statistics(hypothesis: str, reference: str) -> Float[Tensor, "18"]:
    """What a sentence adds: by order of n-gram those of the hypothesis, of the reference, and those they share.

    White space is no character; n-grams of a hypothesis count only where its reference is long enough to have some.
    """
    theirs, ours = ("".join(text.split()) for text in (hypothesis, reference))
    found = []
    for order in range(1, ORDERS + 1):
        one, other = _ngrams(theirs, order), _ngrams(ours, order)
        shared = sum(min(count, other[ngram]) for ngram, count in one.items() if ngram in other)
        found += [one.total() if other else 0, other.total(), shared]
    return torch.tensor(found, dtype=torch.float64)


def score(sums: Sequence[float] | Tensor) -> float:
    """chrF2 of a corpus, 0 to 100, from the sum of its sentences' statistics (18).

    Precision and recall are means over the orders that both sides have.
    """
    table = torch.as_tensor(sums, dtype=torch.float64).view(ORDERS, 3)
    hypothesis, reference, shared = table[(table[:, :2] > 0).all(1)].T
    if not shared.any():
        return 0.0
    precision, recall = float((shared / hypothesis).mean()), float((shared / reference).mean())
    return 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[begin : begin + order] for begin in range(len(text) - order + 1))
