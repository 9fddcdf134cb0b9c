"""Laws of masked language modelling: what its loss and metrics are, and what the task says of text."""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from seqtrain.config import check
from seqtrain.data.batching.masking import MaskedExamples
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.data.tokenizers.recipes import Word
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.models.recurrent import LSTM
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.training.model_and_task import make_pair
from tests.support.examples import SAMPLES
from tests.support.masked import (
    FACTS,
    OPTIONS,
    TEXTS,
    TOKENIZER,
    V,
    batch,
    corpus,
    loaded,
    make,
    pair,
    random_corpus,
    row,
)


def surprisals(task: MaskedLM, model: SequenceModel, tokens: Tensor) -> Tensor:
    """-log p of every token of the vocabulary at each position of one example, by the definition."""
    hidden = model(tokens.unsqueeze(0))[0].squeeze(0)
    if task.transform is not None:
        dense, _, norm = task.transform.children()
        hidden = hidden @ dense.weight.T + dense.bias
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        hidden = hidden - hidden.mean(-1, keepdim=True)
        hidden = hidden / (hidden.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias
    if task.head is None:
        scores = hidden @ model.embed(torch.arange(V).unsqueeze(0))[0].T + task.bias
    else:
        scores = hidden @ task.head.weight.T + task.head.bias
    return scores.exp().sum(-1, keepdim=True).log() - scores


def test_the_loss_is_the_surprisal_of_the_hidden_tokens_whatever_stands_beside_them() -> None:
    for tied, transform in product((True, False), (True, False)):
        model, task = pair(tied=tied, transform=transform)
        found = batch(make(corpus()))
        total, right, count = 0.0, 0, 0
        for lane in range(len(found.tokens)):
            tokens, targets = row(found, lane)
            nats = surprisals(task, model, torch.tensor(tokens))
            for position, target in enumerate(targets):
                if target != IGNORED:
                    total += nats[position, target].item()
                    right += int(nats[position].argmin() == target)
                    count += 1
        for training in (True, False):
            parts, _ = task.train(training).evaluate(model, found, None)
            assert parts["loss"][0].item() == pytest.approx(total, rel=1e-11), (tied, transform, training)
            assert parts["loss"][1] == count == found.totals["loss"]
            assert set(parts) == ({"loss"} if training else {"loss", "accuracy"})
        assert (int(parts["accuracy"][0]), parts["accuracy"][1]) == (right, count), (tied, transform)


def test_the_next_sentence_is_told_from_the_first_hidden_state() -> None:
    model, task = pair(next_sentence=True)
    found = batch(make(corpus(), next_sentence=True))
    parts, _ = task.evaluate(model, found, None)
    assert task.follows is not None
    total = right = 0.0
    for lane, label in enumerate(found.next_labels.tolist()):
        tokens, _ = row(found, lane)
        prob = task.follows(model(torch.tensor([tokens]))[0][0, 0]).softmax(-1)
        total -= prob[label].log().item()
        right += float(prob[label] > 0.5)
    assert parts["next_sentence"][0].item() == pytest.approx(total, rel=1e-11)
    assert parts["next_sentence"][1] == len(found.tokens)
    assert (int(parts["next_sentence_accuracy"][0]), parts["next_sentence_accuracy"][1]) == (right, len(found.tokens))


def test_a_silent_batch_has_a_loss_and_a_gradient_of_0() -> None:
    model, task = pair(next_sentence=True, pseudo_examples=3)
    without_targets = batch(make(corpus(), next_sentence=True)).without_targets()
    for training in (False, True):
        parts, _ = task.train(training).evaluate(model, without_targets, None)
        assert all((total.item(), count) == (0.0, 0) for total, count in parts.values())
    torch.stack([total for total, _ in parts.values()]).sum().backward()
    weights = [*model.parameters(), *task.parameters()]
    assert all(weight.grad is not None and not weight.grad.any() for weight in weights)


def test_the_pseudo_perplexity_hides_each_token_of_the_first_examples_alone() -> None:
    model, task = pair(pseudo_examples=2)
    examples = make(corpus(), max_length=80)  # more tokens than are read at a time
    parts = [task.evaluate(model, batch(examples, index), None)[0]["pseudo"] for index in ([3, 0], [1], [2])]
    total, count = 0.0, 0
    for each in (0, 1):
        found = batch(examples, [each])
        tokens = found.original[0, : int(found.lengths[0])]
        for position in range(1, len(tokens) - 1):
            hidden = tokens.clone()
            hidden[position] = TOKENIZER.mask
            total += surprisals(task, model, hidden)[position, tokens[position]].item()
            count += 1
    assert max(examples.lengths[:2]) > 64
    assert sum(part[0].item() for part in parts) == pytest.approx(total, rel=1e-11)
    assert sum(part[1] for part in parts) == count
    assert "pseudo" not in task.train().evaluate(model, batch(examples), None)[0]
    assert task.predictors["score"](task, loaded(model)).surprisals(TOKENIZER.encode(TEXTS[3]))[4] == pytest.approx(  # pyright: ignore[reportAttributeAccessIssue]
        surprisals(task, model, _between("one [MASK]ore document that has another number of words in it\n"))[
            5, TOKENIZER.ids["m"]
        ].item()
    )


def _between(text: str) -> Tensor:
    return torch.tensor([TOKENIZER.start, *TOKENIZER.encode_masked(text), TOKENIZER.separator])


# -- metrics -----------------------------------------------------------------------------------------------------


def test_metrics_are_means_and_perplexities_of_what_was_counted() -> None:
    _, task = pair()
    found = task.measure(
        {
            "loss": (6.0, 4.0),
            "accuracy": (1.0, 4.0),
            "pseudo": (9.0, 3.0),
            "next_sentence": (1.0, 2.0),
            "next_sentence_accuracy": (1.0, 2.0),
        },
        FACTS,
    )
    assert found == pytest.approx(
        {
            "loss": 1.5,
            "perplexity": math.exp(1.5),
            "pseudo_perplexity": math.exp(3),
            "next_sentence_loss": 0.5,
            "accuracy": 0.25,
            "next_sentence_accuracy": 0.5,
        }
    )
    assert set(task.measure({"loss": (1e6, 1.0), "pseudo": (0.0, 0.0)}, FACTS)) == {"loss", "perplexity"}


def test_masks_are_filled_with_the_likeliest_tokens() -> None:
    model, task = pair()
    text = "th[MASK] cat [MASK]at"
    fill = task.predictors["fill"](task, loaded(model))
    assert fill.reason("cat") == "has no [MASK] to fill in"
    ((first, second),) = (answer["masks"] for answer in fill.predict([text], top_k=3))
    nats = surprisals(task, model, _between(text))
    for answer, position in ((first, 3), (second, 9)):
        best = nats[position].argsort()[:3].tolist()
        assert [each["token"] for each in answer] == [TOKENIZER.token_text(token) for token in best]
        assert [each["probability"] for each in answer] == pytest.approx((-nats[position, best]).exp().tolist())
    assert len(fill.predict([text], top_k=10**6)[0]["masks"][0]) == V


def test_a_training_step_looks_at_no_value_so_that_no_gpu_waits() -> None:
    model, task = pair(next_sentence=True)
    nowhere = batch(make(corpus(), next_sentence=True)).to(torch.device("meta"))  # holds shapes only
    parts, _ = task.to("meta").train().evaluate(model.to("meta"), nowhere, None)
    assert {name: count for name, (_, count) in parts.items()} == nowhere.totals


def test_an_example_is_shown_in_one_line_with_what_was_hidden() -> None:
    tokenizer = Word().train(TEXTS)
    torch.manual_seed(0)
    embed = TokenEmbedding(vocab_size=tokenizer.vocab_size, dim=8, specials=3)
    model = LSTM(embed=embed, dim=8, num_layers=1, dropout=0.0, bidirectional=True)
    task = MaskedLM(**OPTIONS | {"next_sentence": True}, dim=8, vocab_size=tokenizer.vocab_size)
    text = corpus(TEXTS, tokenizer)
    found = batch(make(text, max_length=60, next_sentence=True, tokenizer=tokenizer))
    lines = [each.text for each in task.samples(model, found, Preprocessor(tokenizer, tokenizer), SAMPLES)]
    assert len(lines) == len(found.tokens)
    for line, original, length in zip(lines, found.original, found.lengths, strict=True):
        assert line.isprintable()
        assert len(line) <= 160
        verdict, _, rest = line.partition(": ")
        assert verdict in {f"{a} ({b})" for a in ("next", "not next") for b in ("right", "wrong")}
        if len(line) < 160:
            plain = re.sub(r"\[(?!SEP)(?:[^]|]*\|)?([^]|]*)\]", r"\1", rest)
            first, second = (part.split() for part in plain.split("[SEP]"))
            cut = original.tolist().index(tokenizer.separator)
            assert "".join(first) == "".join(_shown(tokenizer, original[1:cut]).split())
            assert "".join(second) == "".join(_shown(tokenizer, original[cut + 1 : length - 1]).split())


def _shown(tokenizer: Tokenizer, tokens: Tensor) -> str:
    return tokenizer.decode(tokens.tolist())


# -- the shipped file: what BERT's authors did ----------------------------------------------------------------------

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


def test_15_percent_are_hidden_of_which_80_become_the_mask_10_any_token_and_10_stay() -> None:
    rows = Rows({"text": random_corpus([100] * 100)}, None, lambda: iter(()))
    examples = shipped().examples(rows, ALIKE, max_length=102, seed=1)
    assert isinstance(examples, MaskedExamples)
    found = [batch(examples, epoch=epoch) for epoch in range(20)]  # 200,000 tokens of text
    tokens, targets = (
        torch.stack([getattr(each, name)[:, 1:-1] for each in found]).flatten() for name in ("tokens", "targets")
    )
    near(targets != IGNORED, 0.15)
    seen, true = tokens[targets != IGNORED], targets[targets != IGNORED]
    near(seen == TOKENIZER.mask, 0.8)
    near(seen == true, 0.1 + 0.1 / V)  # what is drawn at random may be the token itself
    swapped = seen[(seen != TOKENIZER.mask) & (seen != true)]
    assert int(swapped.max()) < V, "no special token"
    counts, expected = np.bincount(swapped.numpy(), minlength=V), len(swapped) / V
    assert abs(counts - expected).max() < 5 * math.sqrt(expected)


def test_the_shipped_task_hides_single_tokens_and_tells_nothing_of_sentences() -> None:
    task = shipped()
    assert task.follows is None
    assert task.head is None, "tied"
    rows = Rows({"text": corpus(["word " * 60])}, None, lambda: iter(()))
    found = batch(task.examples(rows, ALIKE, max_length=302, seed=1))  # type: ignore[arg-type]
    hidden = (found.targets != IGNORED)[0, 1:301].view(60, 5)[:, :4].sum(1)
    assert ((hidden > 0) & (hidden < 4)).any(), "a word of which a part is hidden"


def test_a_second_sentence_is_called_next_where_it_goes_on_with_the_first() -> None:
    text = random_corpus([40] * 20, seed=3)
    found = batch(make(text, max_length=23, next_sentence=True))
    model, task = pair(next_sentence=True)
    assert task.follows is not None
    head = task.follows[-1]
    assert isinstance(head, torch.nn.Linear)
    head.weight.data.zero_()
    head.bias.data = torch.eye(2, dtype=head.bias.dtype)[0]  # "next", of every pair
    whole = ",".join(map(str, np.asarray(text.tokens).tolist()))
    truths = []
    for sample, original, length in zip(
        task.samples(model, found, ALIKE, SAMPLES), found.original, found.lengths, strict=True
    ):
        ids = original[: int(length)].tolist()
        cut = ids.index(TOKENIZER.separator)
        truths.append(",".join(map(str, ids[1:cut] + ids[cut + 1 : -1])) in whole)
        assert sample.text.startswith(f"next ({'right' if truths[-1] else 'wrong'}): ")
    assert 0.25 < np.mean(truths) < 0.75
