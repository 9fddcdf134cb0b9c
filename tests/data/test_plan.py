"""Laws of the plan: a pure function that lays out every token exactly once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal

import numpy as np
import pytest

from seqtrain.data.batching.plan import TBPTT, Chunk, StreamPlan
from seqtrain.errors import UserError

Reset = Literal["never", "document"]

LENGTHS = (
    [97],
    [1] * 23,  # one-token documents
    [1, 30, 2, 1, 1, 17, 64, 5, 9],
    [3, 200, 1],  # far longer than the rest together
    [8, 16, 4, 8],  # multiples of a chunk
)


@dataclass(frozen=True)
class Layout:
    """What a plan is made from."""

    lengths: list[int]
    lanes: int
    k: int
    reset: Reset = "never"
    carry: bool = True
    shuffle: bool = True
    seed: int = 1

    @property
    def edges(self) -> list[int]:
        return [0, *np.cumsum(self.lengths).tolist()]

    def plan(self) -> StreamPlan:
        tbptt = TBPTT(k1=self.k, k2=self.k, carry=self.carry, reset=self.reset)
        return StreamPlan(
            documents=np.array(self.edges), lanes=self.lanes, tbptt=tbptt, seed=self.seed, shuffle=self.shuffle
        )

    def fits(self) -> bool:
        """Whether each lane gets a token."""
        return self.lanes <= sum(self.lengths)


def layouts(**fixed) -> Iterator[Layout]:
    """Odd and even numbers of lanes, chunks longer and shorter than documents, carried or not."""
    for lengths, lanes, k, reset, carry in product(
        LENGTHS, (1, 2, 3, 5, 7), (1, 4, 9), ("never", "document"), (True, False)
    ):
        layout = Layout(**{"lengths": lengths, "lanes": lanes, "k": k, "reset": reset, "carry": carry} | fixed)
        if layout.fits():
            yield layout


def epoch(plan: StreamPlan, number: int = 0) -> list[Chunk]:
    return [plan.chunk(number, step) for step in range(plan.steps)]


def targets(chunk: Chunk) -> list[int]:
    spans = zip(chunk.begin, chunk.count, strict=True)
    return [token for begin, count in spans for token in range(begin, begin + count)]


def begins(plan: StreamPlan, number: int = 0) -> tuple[int, ...]:
    """Where the first lane reads, step by step."""
    return tuple(int(chunk.begin[0]) for chunk in epoch(plan, number))


def test_every_token_is_a_target_exactly_once_an_epoch() -> None:
    for layout in layouts():
        plan = layout.plan()
        for number in (0, 1, 5):
            found = [token for chunk in epoch(plan, number) for token in targets(chunk)]
            assert sorted(found) == list(range(sum(layout.lengths)))


@pytest.mark.long
def test_a_chunk_follows_the_last_one_of_its_lane_or_starts_from_nothing() -> None:
    for layout, number in product(layouts(carry=True), (0, 2)):
        chunks = epoch(layout.plan(), number)
        assert chunks[0].reset_lanes.all()
        for before, after in pairwise(chunks):
            live = after.count > 0
            follows = after.begin == before.begin + before.count
            assert (follows | after.reset_lanes)[live].all()
            assert (before.count > 0)[live].all()  # a lane that has ended does not begin again


def test_windows_all_start_from_nothing_and_a_stream_that_is_never_reset_does_once_an_epoch() -> None:
    for layout in layouts(carry=False):
        assert all(chunk.reset_lanes.all() for chunk in epoch(layout.plan()))
    for layout in layouts(carry=True, reset="never"):
        first, *rest = epoch(layout.plan(), 1)
        assert first.reset_lanes.all()
        assert not any(chunk.reset_lanes[chunk.count > 0].any() for chunk in rest)


def test_only_the_end_of_a_lane_makes_a_short_chunk() -> None:
    for layout in layouts():
        ends = {sum(layout.lengths) * lane // layout.lanes for lane in range(layout.lanes + 1)}
        if layout.reset == "document":
            ends |= set(layout.edges)
        for chunk in epoch(layout.plan()):
            for begin, count in zip(chunk.begin, chunk.count, strict=True):
                assert count in (0, layout.k) or (count < layout.k and begin + count in ends)


def test_a_lane_begins_with_a_document_where_one_begins_within_a_chunk() -> None:
    for layout in layouts(reset="document", carry=True):
        for lane, begin in enumerate(layout.plan().chunk(0, 0).begin.tolist()):
            even = sum(layout.lengths) * lane // layout.lanes
            near = [edge for edge in layout.edges if even <= edge < even + layout.k]
            assert begin == (near[0] if near else even)


def test_short_documents_end_to_end_waste_no_position() -> None:
    lengths = np.random.default_rng(0).integers(12, 41, 500).tolist()
    never, document = Layout(lengths, 8, 64, "never").plan(), Layout(lengths, 8, 64, "document").plan()
    assert document.steps <= never.steps + 1
    assert document.padding < 0.03


@pytest.mark.long
def test_padding_and_targets_are_what_the_chunks_hold() -> None:
    for layout in layouts(shuffle=False):
        plan = layout.plan()
        counts = [chunk.count for chunk in epoch(plan)]
        assert plan.max_tokens == max(int(count.sum()) for count in counts)
        positions = sum(int(count.max()) * layout.lanes for count in counts)
        assert plan.padding == pytest.approx(1 - sum(layout.lengths) / positions)
        seen = 0
        for step in range(2 * plan.steps + 1):
            assert plan.tokens_before(step) == seen
            seen += int(counts[step % plan.steps].sum())


def test_the_plan_is_a_pure_function_in_whatever_order_it_is_asked() -> None:
    for layout in layouts():
        plan, other = layout.plan(), layout.plan()
        backwards = [other.chunk(3, step) for step in reversed(range(other.steps))]
        for one, two in zip(epoch(plan, 3), reversed(backwards), strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_lanes_of_one_stream_are_contiguous_and_differ_by_at_most_one_token() -> None:
    for lanes in (1, 2, 3, 5, 7, 11):
        chunks = epoch(Layout([50, 51], lanes, 4).plan())
        sizes = np.sum([chunk.count for chunk in chunks], 0)
        assert sizes.max() - sizes.min() <= 1
        assert chunks[0].begin.tolist() == [0, *np.cumsum(sizes)[:-1].tolist()]


def test_independent_windows_are_shuffled_anew_each_epoch_and_carried_ones_never() -> None:
    windows = Layout([400], 2, 4, carry=False)
    in_order = tuple(range(0, 200, 4))
    shuffled = {begins(windows.plan(), number) for number in range(3)}
    shuffled.add(begins(Layout([400], 2, 4, carry=False, seed=2).plan()))
    assert len(shuffled | {in_order}) == 5
    assert all(tuple(sorted(order)) == in_order for order in shuffled)
    for still in (Layout([400], 2, 4, carry=False, shuffle=False), Layout([400], 2, 4, carry=True)):
        assert begins(still.plan(), 0) == begins(still.plan(), 1) == in_order


def test_windows_beyond_a_million_are_read_once_an_epoch_in_an_order_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seqtrain.data.batching.plan.MAX_DRAWN", 3)
    for reset in ("never", "document"):
        layout = Layout([400, 37], 2, 4, reset, carry=False)  # type: ignore[arg-type]
        orders = set()
        for number in (0, 1, 4):
            chunks = epoch(layout.plan(), number)
            assert sorted(token for chunk in chunks for token in targets(chunk)) == list(range(437))
            orders.add(tuple(int(chunk.begin[0]) for chunk in chunks))
        assert len(orders) == 3


def test_a_plan_of_a_stream_takes_as_much_memory_whatever_the_stream_holds() -> None:
    for carry, size in product((True, False), (10**9, 10**15)):
        tbptt = TBPTT(k1=64, k2=128, carry=carry, reset="never")
        tracemalloc.start()
        plan = StreamPlan(documents=np.array([0, size]), lanes=8, tbptt=tbptt, seed=1, shuffle=True)
        assert len(targets(plan.chunk(3, plan.steps // 2))) == 8 * 64
        assert plan.tokens_before(plan.steps) == size
        assert plan.max_tokens == 8 * 64
        assert tracemalloc.get_traced_memory()[1] < 100_000, (carry, size)
        tracemalloc.stop()


def test_more_lanes_than_the_text_can_fill_are_refused() -> None:
    for reset in ("never", "document"):
        with pytest.raises(UserError, match=r"data\.batch_size=5: .*only 4 tokens; use fewer lanes"):
            Layout([1, 1, 1, 1], 5, 4, reset).plan()
