"""Laws of BLEU and chrF: sums over sentences give what sacreBLEU gives for the corpus."""

from __future__ import annotations

import random

import pytest
import sacrebleu
import torch
from sacrebleu.metrics.chrf import CHRF

from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.metrics import bleu, chrf
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


def summed(metric, hypotheses: list[str], references: list[str], **options) -> torch.Tensor:
    return torch.stack([metric.statistics(h, r, **options) for h, r in zip(hypotheses, references, strict=True)]).sum(0)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_bleu_of_summed_statistics_is_sacrebleu_of_the_corpus(count: int, lowercase: bool) -> None:
    for seed in range(20):
        hypotheses, references = pairs(count, seed)
        expected = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=lowercase).score
        sums = summed(bleu, hypotheses, references, lowercase=lowercase)
        assert sums.shape == (bleu.STATISTICS,)
        assert bleu.score(sums) == pytest.approx(expected, abs=1e-9)
        assert bleu.score(sums.tolist()) == bleu.score(sums)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_chrf_of_summed_statistics_is_sacrebleu_of_the_corpus(count: int) -> None:
    for seed in range(20):
        hypotheses, references = pairs(count, seed)
        sums = summed(chrf, hypotheses, references)
        assert sums.shape == (chrf.STATISTICS,)
        assert chrf.score(sums) == pytest.approx(CHRF().corpus_score(hypotheses, [references]).score, abs=1e-9)
        assert chrf.score(sums.tolist()) == chrf.score(sums)


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_a_score_does_not_depend_on_how_sentences_are_batched(metric) -> None:
    hypotheses, references = pairs(30, 5)
    whole = summed(metric, hypotheses, references)
    parts = sum(summed(metric, hypotheses[i : i + 7], references[i : i + 7]) for i in range(0, 30, 7))
    assert metric.score(parts) == metric.score(whole)
    assert 5 < metric.score(whole) < 95


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_a_perfect_translation_scores_100_and_nothing_scores_0(metric) -> None:
    text = ["A man sleeps in a green room .", "Two dogs play."]
    assert metric.score(summed(metric, text, text)) == pytest.approx(100)
    assert metric.score(summed(metric, ["", ""], text)) == 0
    assert metric.score(summed(metric, ["xyz", "q"], text)) == 0


def test_the_signature_is_the_one_that_sacrebleu_prints_for_such_a_corpus() -> None:
    expected = sacrebleu.BLEU()
    expected.corpus_score(["a b"], [["a b"]])
    assert bleu.signature() == str(expected.get_signature())
    assert bleu.signature() == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert "case:lc" in bleu.signature(lowercase=True)


def test_less_is_better_of_what_grows_with_the_loss_and_more_of_all_else_that_a_task_measures() -> None:
    tasks = (NextToken, MaskedLM, Sentiment, Translation)
    ways = {metric.name: metric.better for task in tasks for metric in task.metrics}
    with_the_loss = ("loss", "perplexity", "bits_per_byte")
    assert ways == {name: "min" if name.endswith(with_the_loss) else "max" for name in ways}
    assert set(with_the_loss) < set(ways)
