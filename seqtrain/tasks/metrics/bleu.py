"""BLEU (Papineni et al. 2002) as sacreBLEU computes it (Post 2018), from sums over sentences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

ORDERS = 4
STATISTICS = 2 + 2 * ORDERS


def statistics(hypothesis: str, reference: str, *, lowercase: bool = False) -> Float[Tensor, "10"]:
    """Return a sentence's statistics: words of both texts, matching n-grams by order, all n-grams by order."""
    found = _metric(lowercase).sentence_score(hypothesis, [reference])
    return torch.tensor([found.sys_len, found.ref_len, *found.counts, *found.totals], dtype=torch.float64)


def score(sums: Sequence[float] | Float[Tensor, " 10"]) -> float:
    """Compute BLEU of a corpus, 0 to 100, from the sum of its sentences' statistics (10)."""
    hypothesis, reference, *counts = (int(number) for number in sums)
    return BLEU.compute_bleu(counts[:ORDERS], counts[ORDERS:], hypothesis, reference, smooth_method="exp").score


def signature(*, lowercase: bool = False) -> str:
    """Return the signature that sacreBLEU prints with a score, with its version, for comparison with other scores."""
    metric = BLEU(lowercase=lowercase)
    metric.corpus_score([""], [[""]])  # it wants to know how many references there are
    return str(metric.get_signature())


@cache
def _metric(lowercase: bool) -> BLEU:
    # The effective order changes a sentence's own score, never its counts, and saves a warning for each.
    return BLEU(lowercase=lowercase, effective_order=True)
