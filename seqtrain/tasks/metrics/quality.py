"""Quality of translations against references: BLEU, chrF and exact matches, from sums over sentences."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqtrain.tasks.base import LossTerms, Reduced
from seqtrain.tasks.metrics import bleu, chrf


def update(hypotheses: Sequence[str], references: Sequence[str]) -> LossTerms:
    """Return the sentences' terms: the statistics of `bleu` and `chrf`, and the number of exact matches."""
    # In float64: from 2**24 on, float32 no longer counts one by one.
    bleu_sum, chrf_sum = torch.zeros(bleu.STATISTICS).double(), torch.zeros(chrf.STATISTICS).double()
    matches = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        bleu_sum += bleu.statistics(hypothesis, reference)
        chrf_sum += chrf.statistics(hypothesis, reference)
        matches += hypothesis == reference
    count = len(references)
    return {"bleu": (bleu_sum, count), "chrf": (chrf_sum, count), "exact_match": (torch.tensor(float(matches)), count)}


def compute(totals: Reduced) -> dict[str, float]:
    """Compute the metrics from the totals of `update`; {} if no translations were counted."""
    if not totals.get("bleu", (None, 0))[1]:  # only training's loss, or a share without examples
        return {}
    matches, count = totals["exact_match"]
    return {
        "bleu": bleu.score(totals["bleu"][0]),
        "chrf": chrf.score(totals["chrf"][0]),
        "exact_match": matches / count,
    }
