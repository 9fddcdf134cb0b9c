"""Laws of the next-token task: what its loss and metrics are, by arithmetic done here."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.batching.stream import IGNORED, StreamBatch
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Rows
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.base import Facts
from seqtrain.tasks.next_token import NextToken, ScoreText
from tests.support.model_cases import START, VOCABULARY, Case, assert_near, next_token, some_tokens

NO_WORDS = Facts(bytes_per_token=1.0, words_per_token=None)


def padded_batch() -> StreamBatch:
    tokens, targets = some_tokens(3, 6), some_tokens(3, 6, seed=1) % VOCABULARY
    targets[1, 4:] = targets[2] = IGNORED
    return StreamBatch(tokens=tokens, targets=targets, reset_lanes=None, lanes=slice(0, 3), count=10, total=10)


def probs(task: NextToken, model: SequenceModel, tokens: torch.Tensor) -> torch.Tensor:
    """Probabilities by the definition."""
    scores = task.logits(model, model(tokens)[0]).exp()
    return scores / scores.sum(-1, keepdim=True)


def test_the_loss_is_the_summed_surprisal_of_the_targets_alone() -> None:
    model, batch = Case("gru", ()).make(), padded_batch()
    pairs = [(lane, time) for lane in range(3) for time in range(6) if batch.targets[lane, time] != IGNORED]
    assert len(pairs) == 10
    for tied, training in product((True, False), (True, False)):
        task = next_token(model, tied=tied).train(training)
        parts, state = task.evaluate(model, batch, model.initial(3))
        found = probs(task, model, batch.tokens)
        surprisal = sum(-math.log(found[lane, time, batch.targets[lane, time]].item()) for lane, time in pairs)
        assert parts["loss"][0].item() == pytest.approx(surprisal, rel=1e-12), (tied, training)
        assert parts["loss"][1] == 10
        assert_near(state, model(batch.tokens)[1], 0)
        assert set(parts) == ({"loss"} if training else {"loss", "accuracy"})
        if not training:
            right = sum(int(found[lane, time].argmax()) == int(batch.targets[lane, time]) for lane, time in pairs)
            assert (int(parts["accuracy"][0]), parts["accuracy"][1]) == (right, 10), tied


def test_a_batch_without_a_state_has_the_loss_of_one_from_the_initial_state_and_leaves_none() -> None:
    for name in ("lstm", "gpt"):  # what a model begins with is a law of models
        model, batch = Case(name, ()).make(), padded_batch()
        task = next_token(model)
        alone, left = task.evaluate(model, batch, None)
        assert_near(alone, task.evaluate(model, batch, model.initial(3))[0], 1e-9)
        assert left == {}, name


def test_the_start_token_is_no_target_and_a_tied_head_is_the_embedding() -> None:
    model = Case("rnn", ()).make()
    hidden = model(some_tokens(2, 4))[0]
    for tied in (True, False):
        assert next_token(model, tied=tied).logits(model, hidden).shape == (2, 4, VOCABULARY)
    task = next_token(model)
    assert list(task.parameters()) == []
    assert_near(task.logits(model, hidden)[0, 0, 3], hidden[0, 0] @ model.embed(torch.tensor(3)), 1e-12)
    assert model.embed(torch.tensor(START)).shape == (model.dim,)


def test_a_batch_without_targets_has_a_loss_and_a_gradient_of_0() -> None:
    model, batch = Case("lstm", ()).make(), padded_batch()
    batch.targets.fill_(IGNORED)
    parts, _ = next_token(model).train().evaluate(model, batch, None)
    parts["loss"][0].backward()
    assert parts["loss"][0] == 0
    assert not any(weight.grad.any() for weight in model.parameters() if weight.grad is not None)


def measure(total: float, count: float, facts: Facts, accuracy: float | None = None) -> dict[str, float]:
    totals = {"loss": (total, count)} | ({} if accuracy is None else {"accuracy": (accuracy, count)})
    return NextToken(tied=True, dim=8, vocab_size=VOCABULARY).measure(totals, facts)


def test_bits_per_byte_times_the_bytes_are_the_bits_of_the_whole_text() -> None:
    text = "naïve 🙂 text\n"
    num_bytes, num_tokens, nats = len(text.encode()), 5, 7.5
    found = measure(nats, num_tokens, Facts(bytes_per_token=num_bytes / num_tokens, words_per_token=None))
    assert num_bytes == 17
    assert found["bits_per_byte"] * num_bytes == pytest.approx(nats / math.log(2))
    assert found["loss"] == 1.5
    assert found["perplexity"] == pytest.approx(math.exp(1.5))
    assert "word_perplexity" not in found


def test_word_perplexity_is_per_word_and_line_end_whatever_the_tokens() -> None:
    nats, num_tokens, num_words = 90.0, 30, 20  # in which a word has 1.5 tokens
    found = measure(nats, num_tokens, Facts(bytes_per_token=4.0, words_per_token=num_words / num_tokens))
    assert found["word_perplexity"] == pytest.approx(math.exp(nats / num_words))
    same = measure(nats, num_tokens, Facts(bytes_per_token=4.0, words_per_token=1.0))
    assert same["word_perplexity"] == pytest.approx(same["perplexity"])


def test_accuracy_is_a_share_and_a_hopeless_loss_has_a_finite_perplexity() -> None:
    found = measure(1e6, 10, NO_WORDS, accuracy=4)
    assert found["accuracy"] == 0.4
    assert math.isfinite(found["perplexity"])
    for words in (0.01, 1.0, 30.0):
        hopeless = measure(1e9, 10, Facts(bytes_per_token=1.0, words_per_token=words))
        assert hopeless["word_perplexity"] == hopeless["perplexity"] == math.exp(700)


# -- from the end ------------------------------------------------------------------------------------------------


def backward_task(model: SequenceModel) -> NextToken:
    return NextToken(tied=True, dim=model.dim, vocab_size=VOCABULARY, direction="backward")


def test_read_from_the_end_a_split_is_its_documents_turned_round_and_forward_it_is_left_alone() -> None:
    tokens, documents = np.array([1, 2, 3, 4, 5], dtype=np.uint16), np.array([0, 2, 5])
    rows = Rows({"text": Corpus(tokens, documents, 5, 0, 0, "hash")}, None, lambda: iter(()))
    model = Case("gru", ()).make()
    turned = backward_task(model).arrange(rows).columns["text"]
    assert np.asarray(turned.tokens).tolist() == [5, 4, 3, 2, 1]
    assert turned.documents.tolist() == [0, 3, 5]
    assert next_token(model).arrange(rows) is rows


def test_a_text_scored_from_the_end_has_the_surprisals_of_the_turned_text_each_beside_its_token() -> None:
    model, ids = Case("gru", ()).make(), np.array([1, 4, 2, 6, 3])
    loaded: Any = SimpleNamespace(
        model=model,
        tbptt=TBPTT(k2=3, k1=3, carry=True, reset="never"),
        tokenizer=SimpleNamespace(start=START),
    )
    forward, backward = next_token(model).eval(), backward_task(model).eval()
    of_turned = ScoreText(forward, loaded).surprisals(ids[::-1].copy())
    assert ScoreText(backward, loaded).surprisals(ids) == pytest.approx(of_turned[::-1], rel=1e-12)


def test_what_is_written_from_the_end_stands_before_its_prompt() -> None:
    model, prompt = Case("gru", ()).make(), [1, 4, 2]
    tokenizer: Any = SimpleNamespace(
        start=START,
        encode=lambda text: np.array([int(digit) for digit in text]),
        decode=lambda tokens: "".join(map(str, tokens)),
    )
    task = backward_task(model).eval()
    (text,) = task.continue_texts(model, tokenizer, ["142"], num_tokens=4, temperature=0.0)
    read, expected = [START, *prompt[::-1]], []
    for _ in range(4):
        hidden = model(torch.tensor([read]))[0]
        read.append(int(task.logits(model, hidden)[0, -1].argmax()))
        expected.insert(0, str(read[-1]))
    assert text == "".join(expected)
    assert task.in_words("142", text) == text + "142"
    assert next_token(model).in_words("142", text) == "142" + text
