"""Laws of two language models at once: what the loss is, by arithmetic done here, and that nothing leaks into it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.corpus import Corpus, from_the_end
from seqtrain.data.preprocess import Rows
from seqtrain.models.base import SequenceModel, directions
from seqtrain.models.elmo import ELMo
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.tasks.base import Facts
from seqtrain.tasks.bidirectional_lm import BidirectionalLM, StretchExamples
from tests.support.masked import TEXTS, TOKENIZER, loaded
from tests.support.model_cases import VOCABULARY, Case

START, SEPARATOR = VOCABULARY, VOCABULARY + 1
FACTS = Facts(bytes_per_token=2.0, words_per_token=None)
TEXT = torch.tensor([[START, 1, 4, 2, SEPARATOR], [START, 3, 3, SEPARATOR, 0]])  # the second lane has one of padding
TARGETS = torch.tensor([[IGNORED, 1, 4, 2, IGNORED], [IGNORED, 3, 3, IGNORED, IGNORED]])
PLACES = [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]  # of the targets


def pair(tied: bool = False) -> tuple[SequenceModel, BidirectionalLM]:
    model = Case("elmo", ()).make()
    torch.manual_seed(0)
    return model, BidirectionalLM(tied=tied, dim=model.dim, vocab_size=VOCABULARY).double().eval()


def batch() -> ExampleBatch:
    lengths = torch.tensor([5, 4])
    return ExampleBatch(
        tokens=TEXT, lengths=lengths, targets=TARGETS, index=torch.arange(2), count=9, totals={"loss": 5}
    )


def surprisal(model: SequenceModel, task: BidirectionalLM, lane: int, place: int, direction: int) -> float:
    """-log p of the token at a place, from what stands on one side of it alone."""
    length = (5, 4)[lane]
    known = TEXT[lane : lane + 1, :place] if direction == 0 else TEXT[lane : lane + 1, place + 1 : length]
    hidden = directions(model, known)[direction][0, -1 if direction == 0 else 0]
    probs = task.logits(model, hidden).exp()
    return -math.log((probs / probs.sum())[TEXT[lane, place]].item())


def test_each_token_is_predicted_from_the_tokens_of_one_side_alone() -> None:
    for tied in (True, False):
        model, task = pair(tied)
        with torch.no_grad():
            parts = task.evaluate(model, batch(), None)[0]
            expected = [sum(surprisal(model, task, *place, direction) for place in PLACES) for direction in (0, 1)]
            in_training = task.train().evaluate(model, batch(), None)[0]
        sums = {"forward": expected[0], "backward": expected[1], "loss": sum(expected) / 2}
        assert {name: parts[name][0].item() for name in sums} == pytest.approx(sums, rel=1e-12), tied
        assert [parts[name][1] for name in ("forward", "backward", "loss", "accuracy")] == [5, 5, 5, 10]
        assert set(in_training) == {"loss"}
        assert in_training["loss"][0].item() == pytest.approx(sums["loss"], rel=1e-12), tied
        measured = task.measure({name: (total.item(), number) for name, (total, number) in parts.items()}, FACTS)
        assert measured["loss"] == pytest.approx((measured["loss_forward"] + measured["loss_backward"]) / 2)
        assert measured["loss_backward"] == pytest.approx(expected[1] / 5)
        assert measured["bits_per_byte"] == pytest.approx(measured["loss"] / math.log(2) / 2)


def corpus(*documents: list[int]) -> Corpus:
    offsets = np.cumsum([0, *map(len, documents)])
    tokens = np.concatenate([np.array(document, dtype=np.uint16) for document in documents])
    return Corpus(tokens, offsets, 2 * len(tokens), 0, 0, "hash")


def test_every_token_is_a_target_once() -> None:
    text = corpus([1, 2, 3, 4, 0], [5], [6, 2])
    tokenizer: Any = SimpleNamespace(start=START, separator=SEPARATOR)
    for max_length in (3, 4, 5, 9):
        examples = StretchExamples(text, tokenizer, max_length=max_length)
        index = np.arange(len(examples.lengths))
        made = examples.collate(index, 0, examples.totals(index, 0))
        assert made.targets[made.targets != IGNORED].tolist() == np.asarray(text.tokens).tolist(), max_length
        assert made.totals == {"loss": 8}
        assert made.count - 2 * len(index) == 8
        for row, targets, length in zip(made.tokens, made.targets, made.lengths.tolist(), strict=True):
            assert length <= max_length
            assert (int(row[0]), int(row[length - 1])) == (START, SEPARATOR)
            assert torch.equal(row[1 : length - 1], targets[1 : length - 1])


def test_the_bigram_is_counted_in_both_directions() -> None:
    # After 1 comes anything, and before each of them stands 1: easier read backwards.
    text = corpus([1, 2, 1, 3, 1, 4, 1, 5] * 20)
    rows = Rows({"text": text}, None, lambda: iter(()))
    preprocessor: Any = SimpleNamespace(tokenizer=SimpleNamespace(vocab_size=6))
    task = pair()[1]
    found = task.baselines(rows, rows, preprocessor, print)
    assert set(found) == set(task.known_baselines)
    bigram = found["bigram"]
    assert bigram["loss"] == pytest.approx((bigram["loss_forward"] + bigram["loss_backward"]) / 2)
    assert found["unigram"]["loss_forward"] == pytest.approx(found["unigram"]["loss_backward"])
    uneven = corpus([1, 2, 1, 2, 3, 2] * 30)
    rows = Rows({"text": uneven}, None, lambda: iter(()))
    bigram = task.baselines(rows, rows, preprocessor, print)["bigram"]
    turned = Rows({"text": from_the_end(uneven)}, None, lambda: iter(()))
    other = task.baselines(turned, turned, preprocessor, print)["bigram"]
    assert (other["loss_forward"], other["loss_backward"]) == (bigram["loss_backward"], bigram["loss_forward"])


def test_a_score_is_the_mean_of_both_directions_of_each_token() -> None:
    size = TOKENIZER.vocab_size
    embed = TokenEmbedding(vocab_size=size, dim=8, specials=3)
    model = ELMo(embed=embed, dim=8, num_layers=2, dropout=0.0, bias=True).double().eval()
    task = BidirectionalLM(tied=True, dim=8, vocab_size=size).double().eval()
    score = cast(Any, task.predictors["score"])(task, loaded(model))
    ids = TOKENIZER.encode(TEXTS[3])
    tokens = torch.tensor([[TOKENIZER.start, *ids.tolist(), TOKENIZER.separator]])
    with torch.no_grad():
        from_before, from_behind = (output.logits() for output in task.predictions(model, tokens, None))
    expected = []
    for place, token in enumerate(ids.tolist()):
        one = from_before[0, place].log_softmax(-1)[token]
        two = from_behind[0, place + 1].log_softmax(-1)[token]
        expected.append(-(one + two).item() / 2)
    assert score.surprisals(ids) == pytest.approx(expected, rel=1e-12)
    (answer,) = score.predict([TEXTS[3]])
    assert answer["perplexity"] == pytest.approx(math.exp(sum(expected) / len(expected)))
    assert "(mean of both directions)" in score.words(answer)


def test_the_head_costs_what_torch_counts() -> None:
    for tied in (True, False):
        model, task = pair(tied)
        hidden = torch.zeros(1, 1, model.dim // 2, dtype=torch.float64)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            for _ in range(2):  # each token is predicted by both directions
                task.logits(model, hidden)
        assert counter.get_total_flops() == task.head_flops(), tied
