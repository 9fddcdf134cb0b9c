"""Laws of the stream: what the plan says, cut from the tokens so that nothing is lost, doubled or seen too early."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice, product
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import IGNORED, EvalLoader, Stream, StreamBatch

Reset = Literal["never", "document"]

LENGTHS = [1, 30, 2, 1, 1, 17, 64, 5, 9]  # one-token documents among them
DOCUMENTS = np.concatenate([[0], np.cumsum(LENGTHS)])
SIZE = int(DOCUMENTS[-1])
START = SIZE
STREAM = Stream(np.arange(SIZE, dtype=np.uint16), DOCUMENTS, START)  # each token tells its place
LAYOUTS = list(product((1, 2, 3, 5, 7, 8), (1, 4, 50), ("never", "document"), (True, False)))


def plan(lanes: int, k: int, reset: Reset, carry: bool = True, shuffle: bool = True) -> StreamPlan:
    tbptt = TBPTT(k1=k, k2=k, carry=carry, reset=reset)
    return StreamPlan(documents=DOCUMENTS, lanes=lanes, tbptt=tbptt, seed=1, shuffle=shuffle)


def targets(batches: Iterable[StreamBatch]) -> list[int]:
    return sorted(token for batch in batches for token in batch.targets.flatten().tolist() if token != IGNORED)


def same(one: StreamBatch, two: StreamBatch) -> bool:
    tensors = torch.equal(one.tokens, two.tokens) and torch.equal(one.targets, two.targets)
    if one.reset_lanes is None or two.reset_lanes is None:
        return tensors and one.reset_lanes is two.reset_lanes
    return tensors and torch.equal(one.reset_lanes, two.reset_lanes)


def test_every_stream_token_is_a_target_exactly_once_an_epoch() -> None:
    for (lanes, k, reset, carry), accumulate in product(LAYOUTS, (1, 2, 3)):
        if lanes < accumulate:
            continue
        layout = plan(lanes, k, reset, carry)
        batches = iter(TrainLoader(STREAM, layout, accumulate=accumulate))
        for _ in range(2):
            assert targets(islice(batches, layout.steps * accumulate)) == list(range(SIZE))


def test_evaluation_scores_every_token_exactly_once() -> None:
    for (lanes, k, reset, carry), batch_size in product(LAYOUTS, (1, 3, 8, None)):
        loader = EvalLoader(STREAM, plan(lanes, k, reset, carry, shuffle=False), batch_size=batch_size)
        batches = list(loader)
        assert len(batches) == len(loader)
        assert targets(batches) == list(range(SIZE))
        assert max(len(batch.tokens) for batch in batches) <= (batch_size or lanes)


def test_processes_share_out_an_evaluation_such_that_every_token_is_scored_once() -> None:
    layout = plan(8, 4, "never", shuffle=False)
    for world, batch_size in product((2, 3, 5), (1, 3, None)):
        loaders = [EvalLoader(STREAM, layout, batch_size=batch_size, world=world, rank=rank) for rank in range(world)]
        assert targets(chain(*loaders)) == list(range(SIZE)), (world, batch_size)


def test_an_input_is_the_token_before_its_target_and_a_document_begins_with_the_start_token() -> None:
    begins = set(DOCUMENTS[:-1].tolist())
    for lanes, k, reset, carry in LAYOUTS:
        layout = plan(lanes, k, reset, carry)
        for batch in islice(TrainLoader(STREAM, layout, accumulate=1), layout.steps):
            real = batch.targets != IGNORED
            for token, target in zip(batch.tokens[real].tolist(), batch.targets[real].tolist(), strict=True):
                assert token == (START if target in begins else target - 1)


def test_padding_is_on_the_right_is_no_target_and_is_not_counted() -> None:
    for lanes, k, reset, carry in LAYOUTS:
        layout = plan(lanes, k, reset, carry)
        for batch in islice(TrainLoader(STREAM, layout, accumulate=1), layout.steps):
            real = batch.targets != IGNORED
            assert batch.count == batch.total == int(real.sum()) > 0
            assert (real.long().diff(dim=1) <= 0).all()
            assert real.any(0).all()  # no column is all padding
            assert 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) <= START


@pytest.mark.long
def test_micro_batches_are_slices_of_lanes_never_of_time() -> None:
    for lanes, k, reset, carry in LAYOUTS:
        layout = plan(lanes, k, reset, carry)
        whole = islice(TrainLoader(STREAM, layout, accumulate=1), 2 * layout.steps)
        micro = iter(TrainLoader(STREAM, layout, accumulate=min(3, lanes)))
        for batch in whole:
            parts = list(islice(micro, min(3, lanes)))
            assert {part.total for part in parts} == {batch.total}
            assert sum(part.count for part in parts) == batch.total
            assert [lane for part in parts for lane in range(lanes)[part.lanes]] == list(range(lanes))
            for part in parts:
                width = part.tokens.shape[1]
                real = batch.targets[part.lanes] != IGNORED
                assert torch.equal(part.targets, batch.targets[part.lanes, :width])
                assert torch.equal(part.tokens[real[:, :width]], batch.tokens[part.lanes][real])


def test_a_loader_that_begins_at_a_step_gives_what_the_first_one_gives_from_there() -> None:
    for reset, carry, accumulate in product(("never", "document"), (True, False), (1, 2)):
        layout = plan(3, 4, reset, carry)
        length = (2 * layout.steps + 3) * accumulate
        whole = list(islice(TrainLoader(STREAM, layout, accumulate=accumulate), length))
        for step in range(0, 2 * layout.steps + 3, 5):
            rest = islice(TrainLoader(STREAM, layout, accumulate=accumulate, first_step=step), 4 * accumulate)
            assert all(same(one, two) for one, two in zip(rest, whole[step * accumulate :], strict=False))


def test_a_second_iterator_begins_again_and_reading_ahead_changes_nothing() -> None:
    loader = TrainLoader(STREAM, plan(3, 4, "never", False), accumulate=1, first_step=2)
    first = list(islice(loader, 5))
    assert all(same(one, two) for one, two in zip(first, islice(loader, 5), strict=True))


def test_a_memory_map_of_small_integers_gives_whole_ids(tmp_path: Path) -> None:
    ids = np.array([65_534, 0, 65_533], dtype=np.uint16)
    ids.tofile(tmp_path / "tokens.bin")
    tokens = np.memmap(tmp_path / "tokens.bin", dtype=np.uint16, mode="r")
    documents = np.array([0, 3])
    layout = StreamPlan(
        documents=documents,
        lanes=1,
        tbptt=TBPTT(k1=4, k2=4, carry=True, reset="never"),
        seed=0,
        shuffle=False,
    )
    (batch,) = EvalLoader(Stream(tokens, documents, 65_535), layout, batch_size=None)
    assert batch.tokens.tolist() == [[65_535, 65_534, 0]]
    assert batch.targets.tolist() == [[65_534, 0, 65_533]]


def test_a_batch_keeps_what_it_is_on_another_device() -> None:
    tbptt = TBPTT(k1=2, k2=6, carry=True, reset="document")
    cut = StreamPlan(documents=DOCUMENTS, lanes=3, tbptt=tbptt, seed=1, shuffle=True)
    batches = list(islice(TrainLoader(STREAM, cut, accumulate=1), 40))
    for mask in ("reset_lanes", "starts"):
        assert any(getattr(past, mask) is not None for batch in batches for past in batch.warmup_chunks)
    for batch in batches:
        there = batch.to(torch.device("meta"))
        assert (there.lanes, there.count, there.total) == (batch.lanes, batch.count, batch.total)
        assert there.targets.is_meta
        mine = (batch.tokens, batch.reset_lanes, batch.starts)
        theirs = (there.tokens, there.reset_lanes, there.starts)
        for part, moved in zip((mine, *batch.warmup_chunks), (theirs, *there.warmup_chunks), strict=True):
            assert not part[0].is_meta
            assert [None if tensor is None else tensor.is_meta for tensor in moved] == [
                None if tensor is None else True for tensor in part
            ]
