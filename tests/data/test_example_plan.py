"""Laws of the plan of examples: a pure function that reads each once an epoch, within budgets, like with like."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from itertools import chain, islice, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from seqtrain.data import cache
from seqtrain.data.batching import documents
from seqtrain.data.batching.documents import Stretches
from seqtrain.data.batching.example_plan import ExamplePlan, StretchLengths
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import ExampleChunk
from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.base import Source
from seqtrain.data.sources.parallel import Parallel
from seqtrain.data.sources.text import Text
from seqtrain.data.token_store.tokens import mapped_offsets
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
SIDES = {"source": "de", "target": "en"}


WINDOWS: list[dict[str, int]] = [{}, {"window": 40, "block": 7}, {"window": 3, "block": 1}]


def plan(
    name: str, budget: tuple[int | None, int | None], *, seed: int = 1, shuffle: bool = True, **window: int
) -> ExamplePlan:
    tokens, size = budget
    return ExamplePlan(
        lengths=LENGTHS[name], batch_tokens=tokens, batch_size=size, seed=seed, shuffle=shuffle, **window
    )


def steps(layout: ExamplePlan, epoch: int = 0) -> list[list[int]]:
    return [layout.chunk(epoch, step).examples.tolist() for step in range(layout.steps)]


def room(lengths: np.ndarray, examples: list[int]) -> int:
    """Positions that a batch of these examples takes, padding included."""
    return int(lengths[examples].max(0).sum()) * len(examples)


def layouts() -> Iterator[tuple[np.ndarray, tuple[int | None, int | None], ExamplePlan]]:
    for name, budget in LAYOUTS:
        for shuffle, window in product((True, False), WINDOWS):
            yield LENGTHS[name], budget, plan(name, budget, shuffle=shuffle, **window)


def test_every_example_is_read_exactly_once_an_epoch() -> None:
    for lengths, _, layout in layouts():
        for epoch in (0, 7):
            assert sorted(chain(*steps(layout, epoch))) == list(range(len(lengths)))
            assert all(layout.chunk(epoch, step).epoch == epoch for step in range(layout.steps))


@pytest.mark.long
def test_every_epoch_has_the_same_steps_in_another_order() -> None:
    for lengths, _, layout in layouts():
        first, second = (
            [tuple(sorted(map(tuple, lengths[examples].tolist()))) for examples in steps(layout, epoch)]
            for epoch in (0, 1)
        )
        assert sorted(first) == sorted(second)
        if layout.shuffle and len(set(first)) > 8:
            assert first != second


def test_a_plan_is_a_function_of_lengths_seed_and_epoch_whatever_was_asked_before() -> None:
    for (name, budget), window in product(LAYOUTS, WINDOWS):
        layout, other = plan(name, budget, **window), plan(name, budget, **window)
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


@pytest.mark.long
def test_tokens_padding_and_lanes_are_those_of_the_steps() -> None:
    for lengths, _, layout in layouts():
        found = steps(layout)
        assert layout.num_tokens == lengths.sum()
        assert layout.padding == pytest.approx(1 - lengths.sum() / sum(room(lengths, examples) for examples in found))
        counts = [int(lengths[examples].sum()) for examples in found]
        assert layout.max_tokens == max(counts)
        assert layout.lanes == max(map(len, found))
        assert layout.tokens_before(2 * layout.steps) == 2 * lengths.sum()
        for step in range(layout.steps):
            assert layout.tokens_before(step) == sum(counts[:step])


def sorted_at_once(
    lengths: np.ndarray, budget: tuple[int | None, int | None], seed: int, epoch: int
) -> list[list[int]]:
    """The steps of an epoch, made the long way: a sort of all examples, cut one by one."""
    tokens, size = budget
    rng = np.random.default_rng((seed, epoch))
    found: list[list[int]] = []
    for example in np.lexsort((rng.permutation(len(lengths)), *lengths.T[::-1])).tolist():
        more = [*(found[-1] if found else []), example]
        fits = size is None or len(more) <= size
        if found and fits and (tokens is None or room(lengths, more) <= tokens):
            found[-1] = more
        else:
            found.append([example])
    return [found[place] for place in rng.permutation(len(found))]


def test_the_steps_of_one_window_are_those_of_a_sort_of_all_examples() -> None:
    wide = np.random.default_rng(2).integers(1, 2**17, (60, 2))  # more than sixteen bits
    for lengths, budget in [*((LENGTHS[name], budget) for name, budget in LAYOUTS), (wide, (2**18, None))]:
        tokens, size = budget
        layout = ExamplePlan(lengths=lengths, batch_tokens=tokens, batch_size=size, seed=4, shuffle=True)
        for epoch in (0, 3):
            assert steps(layout, epoch) == sorted_at_once(lengths, budget, 4, epoch)


def test_blocks_of_a_window_come_from_everywhere_and_windows_change_places() -> None:
    lengths = np.full((4000, 1), 5)
    layout = ExamplePlan(lengths=lengths, batch_tokens=None, batch_size=10, seed=0, shuffle=True, window=400, block=10)
    first = layout._members(0)
    assert 1000 < first.mean() < 3000
    assert first.max() - first.min() > 2000
    orders = {tuple(layout._windows(epoch).order.tolist()) for epoch in range(4)}
    assert len(orders) == 4
    still = ExamplePlan(lengths=lengths, batch_tokens=None, batch_size=10, seed=0, shuffle=False, window=400, block=10)
    assert list(chain(*steps(still))) == list(range(4000))


def test_each_epoch_draws_each_window_anew() -> None:
    lengths = np.full((400, 1), 5)
    layout = ExamplePlan(lengths=lengths, batch_tokens=None, batch_size=4, seed=0, shuffle=True, window=100, block=5)
    drawn = {}
    for epoch, window in product((0, 1), range(layout.num_windows)):
        examples, _, order, _ = layout._laid_out(epoch, window)
        members = layout._members(window).tolist()
        places = tuple(members.index(example) for example in examples.tolist())  # apart from which examples they are
        drawn[epoch, window] = places, tuple(order.tolist())
    assert len(set(drawn.values())) == len(drawn) == 8
    assert len({order for _, order in drawn.values()}) == 8


class Names:
    """A batcher whose batch is the examples of its lanes."""

    def batch(self, chunk: ExampleChunk, lanes: slice) -> SimpleNamespace:
        return SimpleNamespace(examples=chunk.examples[lanes].tolist(), fingerprint=0)


def loaded(count: int, **options: int) -> list[tuple[list[int], int]]:
    layout = plan("two sides", (64, None), window=40, block=7)
    loader = TrainLoader(Names(), layout, **({"accumulate": 1} | options))
    return [(batch.examples, batch.fingerprint) for batch in islice(loader, count)]


def test_with_windows_processes_and_micro_batches_share_out_the_steps_of_one() -> None:
    whole = loaded(60)
    for world, accumulate in ((2, 1), (3, 2)):
        shares = [loaded(60 * accumulate, world=world, rank=rank, accumulate=accumulate) for rank in range(world)]
        for step, (examples, fingerprint) in enumerate(whole):
            mine = slice(step * accumulate, (step + 1) * accumulate)
            parts = [part for share in shares for part in share[mine]]
            assert list(chain(*(part for part, _ in parts))) == examples
            assert {mark for _, mark in parts} == {fingerprint}


def test_with_windows_a_loader_that_begins_at_any_step_goes_on_as_the_first_one() -> None:
    whole = loaded(70)
    for step in range(0, 60):
        assert loaded(3, first_step=step) == whole[step : step + 3]


def mapped_plan(folder: Path, count: int) -> ExamplePlan:
    """Of documents in a file, some of two stretches, with small windows."""
    path = folder / f"{count}.bin"
    if not path.exists():
        sizes = np.random.default_rng(0).integers(1, 12, count)
        np.append(0, sizes.cumsum()).astype("<i8").tofile(path)
    lengths = StretchLengths(Stretches(mapped_offsets(path), 8), 2)
    return ExamplePlan(lengths=lengths, batch_tokens=64, batch_size=None, seed=1, shuffle=True, window=2000, block=50)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of files that are never too small to be kept in the cache, which is here."""
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(documents, "MAX_UNKEPT", 0)
    monkeypatch.setattr(documents, "MAX_HELD", 0)
    return tmp_path


def test_a_plan_of_a_file_takes_the_memory_of_a_window_whatever_the_file_holds(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SPANS_AT_A_TIME", 16)
    monkeypatch.setattr(cache, "MAX_BYTES", 1 << 16)  # room is made for as much before a file is read
    peaks = []
    mapped_plan(kept, 3000).chunk(0, 0)  # whatever is made once
    for count in (20_000, 320_000):
        mapped_plan(kept, count)
        tracemalloc.start()
        layout = mapped_plan(kept, count)  # as a resume makes it: from the cache
        for epoch, step in ((0, 0), (5, layout.steps - 1)):
            layout.chunk(epoch, step)
            layout.tokens_before(epoch * layout.steps + step)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert layout.num_tokens > 8 * count
    assert peaks[1] < 1.3 * peaks[0] < 1.3 * 200 * 2000


def test_what_a_plan_counts_of_a_file_is_counted_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = mapped_plan(kept, 5000)
    monkeypatch.setattr(Stretches, "_count_spans", None)
    monkeypatch.setattr(ExamplePlan, "_steps_of", None)
    again = mapped_plan(kept, 5000)
    assert (again.steps, again.num_tokens, again.lanes, again.padding) == (
        first.steps,
        first.num_tokens,
        first.lanes,
        first.padding,
    )
    monkeypatch.undo()
    path = kept / "5000.bin"
    other = np.append(0, np.full(5000, 3).cumsum()).astype("<i8")
    other.tofile(path)  # another file of the same name
    monkeypatch.setenv("SEQTRAIN_CACHE", str(kept / "cache"))
    os.utime(path, ns=(1, 1))
    assert mapped_plan(kept, 5000).num_tokens == 5 * 5000


@pytest.mark.long
def test_real_data_in_batches_of_4096_tokens_is_padded_by_less_than_5_percent(
    shared_data: Path, tmp_path: Path
) -> None:
    pairs = {f"{side}_path": str(shared_data / "multi30k" / f"train.{end}") for side, end in SIDES.items()}
    films = str(shared_data / "sst2" / "train.tsv")
    sources: list[tuple[Source, Recipe, int]] = [
        (Parallel(**pairs, validation_fraction=0.0), BPE(size=8000), 1),
        (Text(path=films, column="sentence", label_column="label", validation_fraction=0.0), Word(), 2),
    ]
    for source, recipe, specials in sources:
        source.check()
        _, rows = prepare_rows(source, recipe, ["train"], source.fields, cache=tmp_path, say=lambda line: None)
        lengths = np.stack([column.lengths for column in rows["train"].columns.values()], 1) + specials
        layout = ExamplePlan(lengths=lengths, batch_tokens=4096, batch_size=None, seed=1, shuffle=True)
        assert 0 <= layout.padding < 0.05, source
