"""Laws of the plan of examples: a pure function that reads each once an epoch, within budgets, like with like."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, product
from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.base import Source
from seqtrain.data.sources.parallel import Parallel
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import BPE, Recipe, Word

LENGTHS = {
    "one side": np.random.default_rng(0).integers(2, 40, (97, 1)),
    "two sides": np.random.default_rng(1).integers(1, 20, (97, 2)),
    "all alike": np.full((50, 1), 7),
    "one far longer": np.array([[3], [2], [500], [4], [2]]),
    "one": np.array([[9]]),
}
BUDGETS = [(64, None), (None, 5), (64, 3), (1, None), (10**6, None)]
LAYOUTS = list(product(LENGTHS, BUDGETS))


def plan(name: str, budget: tuple[int | None, int | None], *, seed: int = 1, shuffle: bool = True) -> ExamplePlan:
    tokens, size = budget
    return ExamplePlan(lengths=LENGTHS[name], batch_tokens=tokens, batch_size=size, seed=seed, shuffle=shuffle)


def steps(layout: ExamplePlan, epoch: int = 0) -> list[list[int]]:
    return [layout.chunk(epoch, step).examples.tolist() for step in range(layout.steps)]


def room(lengths: np.ndarray, examples: list[int]) -> int:
    """Positions that a batch of these examples takes, padding included."""
    return int(lengths[examples].max(0).sum()) * len(examples)


def layouts() -> Iterator[tuple[np.ndarray, tuple[int | None, int | None], ExamplePlan]]:
    for name, budget in LAYOUTS:
        for shuffle in (True, False):
            yield LENGTHS[name], budget, plan(name, budget, shuffle=shuffle)


def test_every_example_is_read_exactly_once_an_epoch() -> None:
    for lengths, _, layout in layouts():
        for epoch in (0, 1, 7):
            assert sorted(chain(*steps(layout, epoch))) == list(range(len(lengths)))
            assert all(layout.chunk(epoch, step).epoch == epoch for step in range(layout.steps))


def test_the_budgets_of_tokens_and_examples_are_kept_by_all_that_hold_more_than_one() -> None:
    for lengths, (tokens, size), layout in layouts():
        for examples in steps(layout, 3):
            assert examples
            assert len(examples) == 1 or tokens is None or room(lengths, examples) <= tokens
            assert size is None or len(examples) <= size
            assert len(examples) <= layout.lanes
        assert max(map(len, steps(layout))) == layout.lanes


def test_a_step_takes_as_many_as_it_may() -> None:
    for name, (tokens, size) in LAYOUTS:
        lengths = LENGTHS[name]
        in_order = steps(plan(name, (tokens, size), shuffle=False))
        for examples, following in pairwise(in_order):
            more = [*examples, following[0]]
            full = size is not None and len(examples) == size
            assert full or (tokens is not None and room(lengths, more) > tokens)


def test_every_epoch_has_the_same_steps_in_another_order() -> None:
    for lengths, _, layout in layouts():
        first, second = (
            [tuple(sorted(map(tuple, lengths[examples].tolist()))) for examples in steps(layout, epoch)]
            for epoch in (0, 1)
        )
        assert sorted(first) == sorted(second)
        if layout.shuffle and len(set(first)) > 8:
            assert first != second


def test_examples_of_equal_length_change_places() -> None:
    one, two = (steps(plan("all alike", (None, 5)), epoch) for epoch in (0, 1))
    assert {frozenset(examples) for examples in one} != {frozenset(examples) for examples in two}


def test_a_plan_is_a_function_of_lengths_seed_and_epoch_whatever_was_asked_before() -> None:
    for name, budget in LAYOUTS:
        layout, other = plan(name, budget), plan(name, budget)
        layout.chunk(5, 0)
        for epoch, step in ((2, layout.steps - 1), (0, 0), (2, 0)):
            assert np.array_equal(layout.chunk(epoch, step).examples, other.chunk(epoch, step).examples)
    assert steps(plan("one side", (64, None), seed=2)) != steps(plan("one side", (64, None)))


def test_without_shuffling_examples_stand_in_order_of_length_in_every_epoch() -> None:
    for name, budget in LAYOUTS:
        layout = plan(name, budget, shuffle=False)
        order = list(chain(*steps(layout)))
        assert list(chain(*steps(layout, 4))) == order
        keys = [(*LENGTHS[name][example].tolist(), example) for example in order]
        assert keys == sorted(keys)


def test_tokens_and_padding_are_those_of_the_steps() -> None:
    for lengths, _, layout in layouts():
        found = steps(layout)
        assert layout.num_tokens == lengths.sum()
        assert layout.padding == pytest.approx(1 - lengths.sum() / sum(room(lengths, examples) for examples in found))
        assert sorted(layout.targets) == sorted(lengths[examples].sum() for examples in found)
        assert [layout.tokens_before(epoch * layout.steps) for epoch in range(3)] == [
            0,
            lengths.sum(),
            2 * lengths.sum(),
        ]


@pytest.fixture(scope="module")
def parallel(shared_data: Path) -> Source:
    folder = shared_data / "multi30k"
    return Parallel(source_path=str(folder / "train.de"), target_path=str(folder / "train.en"), validation_fraction=0.0)


@pytest.fixture(scope="module")
def labelled(shared_data: Path) -> Source:
    train = str(shared_data / "sst2" / "train.tsv")
    return Text(path=train, column="sentence", label_column="label", validation_fraction=0.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "recipe", "specials"), [("parallel", BPE(size=8000), 1), ("labelled", Word(), 2)], ids=["Multi30k", "SST"]
)
def test_real_data_in_batches_of_4096_tokens_is_padded_by_less_than_5_percent(
    name: str, recipe: Recipe, specials: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source: Source = request.getfixturevalue(name)
    source.check()
    _, rows = prepare_rows(source, recipe, ["train"], source.fields, cache=tmp_path, say=lambda line: None)
    lengths = np.stack([column.lengths for column in rows["train"].columns.values()], 1) + specials
    layout = ExamplePlan(lengths=lengths, batch_tokens=4096, batch_size=None, seed=1, shuffle=True)
    assert 0 <= layout.padding < 0.05
