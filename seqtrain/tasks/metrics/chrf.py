"""chrF2 (Popović 2015) as sacreBLEU computes it, from sums over sentences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from sacrebleu.metrics.chrf import CHRF
from torch import Tensor

METRIC = CHRF()
STATISTICS = 3 * METRIC.order


# sacreBLEU has no public name for the statistics that it sums itself; the tests hold these two to its public score.


def statistics(hypothesis: str, reference: str) -> Float[Tensor, "18"]:
    """Return a sentence's statistics by order: n-grams of the hypothesis, of the reference, and common to both."""
    found = METRIC._extract_corpus_statistics([hypothesis], [[reference]])
    return torch.tensor(found[0], dtype=torch.float64)


def score(sums: Sequence[float] | Float[Tensor, " 18"]) -> float:
    """Compute chrF2 of a corpus, 0 to 100, from the sum of its sentences' statistics (18)."""
    return METRIC._compute_score_from_stats([int(number) for number in sums]).score
