"""Laws of the pairs task: its loss, its gradient, its metrics and its groups, by arithmetic done here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqtrain.data.batching.examples import padded
from seqtrain.data.batching.plan import ExampleChunk, deal
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.recipes import Byte
from seqtrain.models.bert import BERT
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.tasks.base import Facts
from seqtrain.tasks.pairs import LEAST_TEMPERATURE, PairBatch, PairExamples, Pairs
from seqtrain.training.accumulators import Accumulators

FACTS = Facts(bytes_per_token=1.0, words_per_token=None)
# Within the two groups: the second text of row 0 is the first one of 2; 3 and 5 share a first text, 4 and 6 a second.
FIRST = ["a ship", "the hill", "lamps", "by the river", "stones", "by the river", "a cloud"]
SECOND = ["lamps", "der Hügel", "Lampen", "am Fluss", "Steine", "beim Fluss", "Steine"]
SHARED = (("one", 1), ("two", 5))
EXACT = 1e-12


def task(**given: Any) -> Pairs:
    return Pairs(**{"pool": "mean_all", "temperature": "learned", "group_size": 3, "dim": 8} | given).double()


def model() -> BERT:
    torch.manual_seed(0)
    embed = TokenEmbedding(vocab_size=256, dim=8, specials=3)
    made = BERT(
        **{"embed": embed, "dim": 8, "num_layers": 1, "num_heads": 2, "dropout": 0.0, "positions": "rotary"},
        **{"max_length": None, "num_segments": 2, "norm": "pre", "bias": True, "activation": "gelu"},
    ).double()
    for parameter in made.parameters():  # so large that a wrong read shows
        torch.nn.init.normal_(parameter, std=1.0)
    return made.eval()


def corpus(texts: list[str]) -> Corpus:
    rows = [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in texts]
    offsets = np.append(0, np.cumsum([len(row) for row in rows]))
    return Corpus(np.concatenate(rows), offsets, 0, 0, 0, "")


def examples(first: list[str] = FIRST, second: list[str] = SECOND, group_size: int = 3) -> PairExamples:
    tokenizer = Byte().train([])
    rows = Rows({"source": corpus(first), "target": corpus(second)}, None, lambda: iter([]))
    return PairExamples(rows, Preprocessor(tokenizer, tokenizer), max_length=64, group_size=group_size)


def whole(made: PairExamples) -> PairBatch:
    every = np.arange(len(made.lengths))
    return made.batch(ExampleChunk(every, 0), slice(0, len(every)))


def by_hand(given: Pairs, encoder: BERT, groups: list[list[int]], first: list[str], second: list[str]) -> Tensor:
    """The loss, one text and one number at a time."""

    def vector(text: str) -> Tensor:
        tokens = torch.tensor([[256, *text.encode(), 257]])
        return encoder.encode(tokens, torch.tensor([tokens.shape[1]]))[0].mean(0)

    def cosine(one: Tensor, other: Tensor) -> Tensor:
        return (one * other).sum() / (one.pow(2).sum().sqrt() * other.pow(2).sum().sqrt())

    vectors = [vector(text) for text in first], [vector(text) for text in second]
    scale, total = given.log_scale.exp(), torch.zeros(1).double()
    for group in groups:
        for row in group:
            for flip in (False, True):
                powers = torch.zeros(1).double()
                for other in group:
                    asks, asked = (other, row) if flip else (row, other)
                    alike = first[row] == first[other] or second[row] == second[other] or first[asks] == second[asked]
                    if other == row or not alike:
                        powers = powers + (scale * cosine(vectors[0][asks], vectors[1][asked])).exp()
                right = scale * cosine(vectors[0][row], vectors[1][row])
                total = total + (powers.log() - right) / 2
    return total


def test_loss_and_gradients_are_those_of_a_double_loop_without_rows_that_have_a_text_in_common() -> None:
    made, given, encoder = examples(), task(), model()
    batch = whole(made)
    assert batch.groups.tolist() == [0, 0, 0, 1, 1, 1, 1]
    (total, count), expected = given.train().evaluate(encoder, batch, None)[0]["loss"], None
    weights = [given.log_scale, *encoder.parameters()]
    found = torch.autograd.grad(total, weights, allow_unused=True)
    expected = by_hand(given, encoder, [[0, 1, 2], [3, 4, 5, 6]], FIRST, SECOND)
    assert count == len(FIRST)
    assert abs(total.item() - expected.item()) < EXACT
    for one, other in zip(found, torch.autograd.grad(expected.sum(), weights, allow_unused=True), strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or (one - other).abs().max() < 1e-10


def test_a_step_has_the_same_loss_in_one_slice_and_in_any_number_of_them() -> None:
    given, encoder = task().train(), model()
    made = examples()
    total = given.evaluate(encoder, whole(made), None)[0]["loss"][0].item()
    for slices in (2, 3, 5, 9):
        parts = [made.batch(ExampleChunk(np.arange(7), 0), deal(7, slices, number)) for number in range(slices)]
        terms = [given.evaluate(encoder, part, None)[0]["loss"] for part in parts]
        assert sum(count for _, count in terms) == 7
        assert abs(sum(each.item() for each, _ in terms) - total) < EXACT


def measured(given: Pairs, encoder: BERT, batches: list[PairBatch]) -> dict[str, float]:
    sums = Accumulators()
    with torch.no_grad():
        for batch in batches:
            sums.add(given.eval().evaluate(encoder, batch, None)[0])
    return given.measure(sums.read(), FACTS)


def test_metrics_are_those_of_a_loop_over_all_rows_in_whatever_order_and_batches() -> None:
    # Row 1 has the first text of row 0, row 5 the second one of row 4, and so on.
    first, second = ([f"{side} {n * n - (n % 10 == row) * (2 * n - 1)}" for n in range(40)] for side, row in SHARED)
    made, given, encoder = examples(first, second), task(), model()
    found = measured(given, encoder, [whole(made)])
    drawn = np.random.default_rng(0).permutation(40)
    pieces = [made.batch(ExampleChunk(drawn[n : n + 7], 0), slice(0, 7)) for n in range(0, 40, 7)]
    for name, value in measured(given, encoder, pieces).items():
        assert abs(value - found[name]) < EXACT, name
    vectors = [
        np.stack([encoder.encode(*padded([np.array([256, *text.encode(), 257])]))[0].mean(0).tolist() for text in side])
        for side in (first, second)
    ]
    places = []
    for row in range(40):
        scores = [
            float(vectors[0][row] @ other / np.linalg.norm(vectors[0][row]) / np.linalg.norm(other))
            for other in vectors[1]
        ]
        right = {other for other in range(40) if first[other] == first[row] or second[other] == second[row]}
        best = max(scores[other] for other in right)
        places.append(1 + sum(scores[other] > best for other in range(40) if other not in right))
    expected = {f"recall_{depth}": np.mean([place <= depth for place in places]) for depth in (1, 5, 10)}
    expected |= {"mrr": np.mean([1 / place for place in places])}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=EXACT)
    # Of one group of all rows, the loss of evaluation is that of training, but for texts equal across the sides.
    one_group = examples(first, second, group_size=40)
    total, count = given.train().evaluate(encoder, whole(one_group), None)[0]["loss"]
    assert found["loss"] == pytest.approx(total.item() / count, abs=1e-9)


def test_an_encoder_that_gives_equal_vectors_is_at_chance_and_not_right() -> None:
    first, second = ([f"{side} {n}" for n in range(50)] for side in ("one", "two"))
    encoder = model()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.zero_()
        encoder.embed.get_parameter("weight").fill_(1.0)
    found = measured(task(), encoder, [whole(examples(first, second))])
    assert found["recall_1"] == pytest.approx(1 / 50)
    assert found["recall_10"] == pytest.approx(10 / 50)
    assert found["loss"] == pytest.approx(math.log(50))


def test_a_bootstrap_that_draws_a_row_twice_measures_as_if_it_stood_there_twice() -> None:
    made, given, encoder = examples(), task(), model()
    with torch.no_grad():
        parts = [given.eval().evaluate(encoder, made.collate(np.array([n]), 0, {}), None)[0] for n in range(7)]
    sums = Accumulators()
    for drawn in (0, 1, 1, 3, 6):
        sums.add(parts[drawn])
    rows = [0, 1, 1, 3, 6]
    again = examples([FIRST[n] for n in rows], [SECOND[n] for n in rows])
    assert given.measure(sums.read(), FACTS) == pytest.approx(measured(given, encoder, [whole(again)]), abs=1e-9)


def test_a_learned_temperature_stays_above_its_least_and_a_given_one_is_no_weight() -> None:
    given = task().train()
    with torch.no_grad():
        given.log_scale.fill_(9.0)
    given.evaluate(model(), whole(examples()), None)
    assert given.log_scale.exp().item() == pytest.approx(1 / LEAST_TEMPERATURE)
    fixed = task(temperature=0.1)
    assert not list(fixed.parameters())
    assert not fixed.state_dict()
    assert fixed.log_scale.exp().item() == pytest.approx(10.0)
