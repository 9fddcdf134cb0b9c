"""Quality of translations: BLEU, chrF2 and exact matches, from sums over sentences.

BLEU (Papineni et al. 2002) and chrF2 (Popović 2015) are as sacreBLEU computes them (Post 2018).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from torch import Tensor

from seqtrain.tasks.base import LossTerms, Reduced


def update(hypotheses: Sequence[str], references: Sequence[str]) -> LossTerms:
    """Return the sentences' terms: the statistics of `bleu` and `chrf`, and the number of exact matches."""
    # In float64, because float32 cannot represent every count above 2**24.
    bleu_sum, chrf_sum = torch.zeros(BLEU_STATISTICS).double(), torch.zeros(CHRF_STATISTICS).double()
    matches = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        bleu_sum += bleu_statistics(hypothesis, reference)
        chrf_sum += chrf_statistics(hypothesis, reference)
        matches += hypothesis == reference
    count = len(references)
    return {"bleu": (bleu_sum, count), "chrf": (chrf_sum, count), "exact_match": (torch.tensor(float(matches)), count)}


def compute(totals: Reduced) -> dict[str, float]:
    """Compute the metrics from the totals of `update`; {} if no translations were counted."""
    if not totals.get("bleu", (None, 0))[1]:  # only the training loss, or a process without examples
        return {}
    matches, count = totals["exact_match"]
    return {
        "bleu": bleu_score(totals["bleu"][0]),
        "chrf": chrf_score(totals["chrf"][0]),
        "exact_match": matches / count,
    }


ORDERS = 4
BLEU_STATISTICS = 2 + 2 * ORDERS
# The effective order changes a sentence's score, never its counts, and avoids a warning per sentence.
SENTENCE_BLEU = BLEU(effective_order=True)


def bleu_statistics(hypothesis: str, reference: str) -> Float[Tensor, "10"]:
    """Return a sentence's statistics: words of both texts, matching n-grams by order, all n-grams by order."""
    found = SENTENCE_BLEU.sentence_score(hypothesis, [reference])
    return torch.tensor([found.sys_len, found.ref_len, *found.counts, *found.totals], dtype=torch.float64)


def bleu_score(sums: Sequence[float] | Float[Tensor, " 10"]) -> float:
    """Compute BLEU of a corpus, 0 to 100, from the sum of its sentences' statistics (10)."""
    hypothesis, reference, *counts = (int(number) for number in sums)
    return BLEU.compute_bleu(counts[:ORDERS], counts[ORDERS:], hypothesis, reference, smooth_method="exp").score


def bleu_signature() -> str:
    """Return the signature that sacreBLEU prints with a score, with its version, for comparison with other scores."""
    metric = BLEU()
    metric.corpus_score([""], [[""]])  # sacreBLEU must first see the number of references
    return str(metric.get_signature())


METRIC = CHRF()
CHRF_STATISTICS = 3 * METRIC.order


# sacreBLEU has no public function for the statistics that it sums; tests compare these two with its public score.


def chrf_statistics(hypothesis: str, reference: str) -> Float[Tensor, "18"]:
    """Return a sentence's statistics by order: n-grams of the hypothesis, of the reference, and common to both."""
    found = METRIC._extract_corpus_statistics([hypothesis], [[reference]])
    return torch.tensor(found[0], dtype=torch.float64)


def chrf_score(sums: Sequence[float] | Float[Tensor, " 18"]) -> float:
    """Compute chrF2 of a corpus, 0 to 100, from the sum of its sentences' statistics (18)."""
    return METRIC._compute_score_from_stats([int(number) for number in sums]).score
