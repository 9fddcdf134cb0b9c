"""Laws of masking as the shipped file has it: what BERT's authors did, and what is shown of a second sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from seqtrain.config import check
from seqtrain.data.batching.masking import MaskedExamples
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.training.model_and_task import make_pair
from tests.support.examples import SAMPLES
from tests.support.masked import TOKENIZER, V, batch, corpus, make, pair, random_corpus

ALIKE = Preprocessor(TOKENIZER, TOKENIZER)


def shipped(*overrides: str) -> MaskedLM:
    """The task of `task=masked_lm`, with nothing set that these overrides do not set."""
    config = check.compose(["task=masked_lm", "tokenizer=char", "model.dim=8", *overrides]).config
    _, task = make_pair(config, ALIKE)
    assert isinstance(task, MaskedLM)
    return task


def near(share: torch.Tensor, expected: float) -> None:
    """A share of many draws lies within 5 standard errors of what is expected of it."""
    assert share.double().mean().item() == pytest.approx(
        expected, abs=5 * math.sqrt(expected * (1 - expected) / share.numel())
    )


@pytest.fixture(scope="module")
def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    """What 200,000 tokens of text become by the shipped options, and the targets: (N,) each."""
    rows = Rows({"text": random_corpus([100] * 100)}, None, lambda: iter(()))
    examples = shipped().examples(rows, ALIKE, max_length=102, seed=1)
    assert isinstance(examples, MaskedExamples)
    found = [batch(examples, epoch=epoch) for epoch in range(20)]
    tokens, targets = (
        torch.stack([getattr(each, name)[:, 1:-1] for each in found]).flatten() for name in ("tokens", "targets")
    )
    return tokens, targets


def test_15_percent_of_the_text_is_hidden(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, targets = drawn
    near(targets != IGNORED, 0.15)


def test_of_what_is_hidden_80_percent_become_the_mask_10_percent_any_token_and_10_percent_stay(
    drawn: tuple[torch.Tensor, torch.Tensor],
) -> None:
    tokens, targets = drawn
    seen, true = tokens[targets != IGNORED], targets[targets != IGNORED]
    near(seen == TOKENIZER.mask, 0.8)
    near(seen == true, 0.1 + 0.1 / V)  # what is drawn at random may be the token itself
    near((seen != TOKENIZER.mask) & (seen != true), 0.1 - 0.1 / V)


def test_what_is_drawn_at_random_is_any_token_of_the_text_alike_and_no_special_one(
    drawn: tuple[torch.Tensor, torch.Tensor],
) -> None:
    tokens, targets = drawn
    swapped = tokens[(targets != IGNORED) & (tokens != TOKENIZER.mask) & (tokens != targets)]
    assert int(swapped.max()) < V
    counts = np.bincount(swapped.numpy(), minlength=V)
    expected = len(swapped) / V
    assert abs(counts - expected).max() < 5 * math.sqrt(expected)


def test_the_shipped_task_hides_single_tokens_and_tells_nothing_of_sentences() -> None:
    task = shipped()
    assert task.follows is None
    assert task.head is None, "tied"
    rows = Rows({"text": corpus(["word " * 60])}, None, lambda: iter(()))
    found = batch(task.examples(rows, ALIKE, max_length=302, seed=1))  # type: ignore[arg-type]
    hidden = (found.targets != IGNORED)[0, 1:301].view(60, 5)[:, :4].sum(1)
    assert ((hidden > 0) & (hidden < 4)).any(), "a word of which a part is hidden"


@pytest.mark.parametrize("told", [0, 1])
def test_a_second_sentence_is_called_next_where_it_goes_on_with_the_first(told: int) -> None:
    text = random_corpus([40] * 20, seed=3)
    found = batch(make(text, max_length=23, next_sentence=True))
    model, task = pair(next_sentence=True)
    assert task.follows is not None
    head = task.follows[-1]
    assert isinstance(head, torch.nn.Linear)
    head.weight.data.zero_()
    head.bias.data = torch.eye(2, dtype=head.bias.dtype)[told]  # the same answer to every pair
    lines = [sample.text for sample in task.samples(model, found, ALIKE, SAMPLES)]
    whole = ",".join(map(str, np.asarray(text.tokens).tolist()))
    truths = []
    for line, row, length in zip(lines, found.original, found.lengths, strict=True):
        ids = row[: int(length)].tolist()
        cut = ids.index(TOKENIZER.separator)
        goes_on = ",".join(map(str, ids[1:cut] + ids[cut + 1 : -1])) in whole
        word = ("next", "not next")[told]
        assert line.startswith(f"{word} ({'right' if goes_on == (told == 0) else 'wrong'}): ")
        truths.append(goes_on)
    assert 0.25 < np.mean(truths) < 0.75
