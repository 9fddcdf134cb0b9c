"""Laws of BLEU and chrF: sums over sentences give what sacreBLEU gives for the corpus."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sacrebleu
import torch
from sacrebleu.metrics.chrf import CHRF

from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.metrics import translations
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.translation import Translation

TEXT = "a Man man's in the green-blue room, sleeps on 3.5 couches . ! größer &amp; 你好 naïve U.S. on.\t é"


def pairs(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Hypotheses and references: garbled words of any number, none included; some are equal."""
    draw, words = random.Random(seed), TEXT.split(" ")
    references = [" ".join(draw.choices(words, k=draw.choice([0, 1, 2, 5, 12]))) for _ in range(count)]
    hypotheses = [" ".join(w if draw.random() < 0.8 else draw.choice(words) for w in r.split(" ")) for r in references]
    return [text if draw.random() < 0.8 else text[: len(text) // 2] for text in hypotheses], references


METRICS = (
    (translations.bleu_statistics, translations.bleu_score),
    (translations.chrf_statistics, translations.chrf_score),
)


def summed(statistics: Any, hypotheses: list[str], references: list[str], **options: bool) -> torch.Tensor:
    return torch.stack([statistics(h, r, **options) for h, r in zip(hypotheses, references, strict=True)]).sum(0)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_scores_of_summed_statistics_are_those_of_sacrebleu_of_the_corpus(count: int) -> None:
    for seed in range(20):
        hypotheses, references = pairs(count, seed)
        for lowercase in (False, True):
            expected = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=lowercase).score
            sums = summed(translations.bleu_statistics, hypotheses, references, lowercase=lowercase)
            assert translations.bleu_score(sums) == pytest.approx(expected, abs=1e-9)
            assert translations.bleu_score(sums.tolist()) == translations.bleu_score(sums)
        sums = summed(translations.chrf_statistics, hypotheses, references)
        expected = CHRF().corpus_score(hypotheses, [references]).score
        assert translations.chrf_score(sums) == pytest.approx(expected, abs=1e-9)
        assert translations.chrf_score(sums.tolist()) == translations.chrf_score(sums)


def test_a_score_is_of_sums_however_they_are_batched_100_if_perfect_and_0_of_nothing() -> None:
    text = ["A man sleeps in a green room .", "Two dogs play."]
    hypotheses, references = pairs(30, 5)
    for statistics, score in METRICS:
        whole = summed(statistics, hypotheses, references)
        parts = sum(summed(statistics, hypotheses[i : i + 7], references[i : i + 7]) for i in range(0, 30, 7))
        assert score(parts) == score(whole)  # type: ignore[arg-type]
        assert 5 < score(whole) < 95
        assert score(summed(statistics, text, text)) == pytest.approx(100)
        assert score(summed(statistics, ["", ""], text)) == score(summed(statistics, ["xyz", "q"], text)) == 0


def test_the_signature_is_the_one_that_sacrebleu_prints_for_such_a_corpus() -> None:
    expected = sacrebleu.BLEU()
    expected.corpus_score(["a b"], [["a b"]])
    assert translations.bleu_signature() == str(expected.get_signature())
    assert "case:lc" in translations.bleu_signature(lowercase=True)


def test_less_is_better_of_what_grows_with_the_loss_and_more_of_all_else_that_a_task_measures() -> None:
    tasks = (NextToken, MaskedLM, Sentiment, Translation)
    ways = {metric.name: metric.better for task in tasks for metric in task.metrics}
    with_the_loss = ("loss", "perplexity", "bits_per_byte")
    assert ways == {name: "min" if name.endswith(with_the_loss) else "max" for name in ways}
    assert set(with_the_loss) < set(ways)
