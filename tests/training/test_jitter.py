"""Laws of random chunk lengths (tbptt.jitter), of reading from a step on, and of cuts that are refused."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan, awd_lengths
from seqtrain.data.batching.stream import Stream
from seqtrain.models.base import Capability
from seqtrain.runs.directory import Run
from seqtrain.training.compatibility import incompatibility
from seqtrain.training.optim.schedules import InverseSqrt
from seqtrain.training.session import paced
from tests.conftest import Seqtrain
from tests.support.model_cases import START, Case, assert_near, next_token
from tests.support.streams import Setting
from tests.support.tiny import OPTIONS, corpus

JITTER = TBPTT(k1=20, k2=20, carry=True, reset="never", jitter="awd")
SIZE = 1001  # of three lanes two have a token more than the other


def plan(seed: int = 1, tbptt: TBPTT = JITTER) -> StreamPlan:
    return StreamPlan(documents=np.array([0, 500, SIZE]), lanes=3, tbptt=tbptt, seed=seed, shuffle=True)


def lengths(layout: StreamPlan, epoch: int) -> list[int]:
    return [int(layout.chunk(epoch, step).count.max()) for step in range(layout.steps)]


def test_every_token_is_a_target_once_in_every_epoch_of_as_many_steps() -> None:
    layout = plan()
    for epoch in (3, 0, 1):
        chunks = [layout.chunk(epoch, step) for step in range(layout.steps)]
        spans = [range(begin, begin + count) for one in chunks for begin, count in zip(*one[:2], strict=True)]
        assert sorted(token for span in spans for token in span) == list(range(SIZE))
        assert chunks[0].reset_lanes.all()
        for before, after in pairwise(chunks):
            live = after.count > 0
            assert (before.begin + before.count == after.begin)[live].all()
            assert not after.reset_lanes[live].any()


def test_lengths_are_the_same_for_every_lane_and_vary_by_epoch_and_seed_alone() -> None:
    layout, again = plan(), plan()
    orders = [tuple(lengths(layout, epoch)) for epoch in range(4)]
    assert [tuple(lengths(again, epoch)) for epoch in reversed(range(4))] == orders[::-1]
    assert len({*orders, tuple(lengths(plan(seed=2), 0))}) == 5
    assert len({tuple(sorted(order)) for order in orders}) == 1
    counts = np.array([layout.chunk(2, step).count for step in range(layout.steps - 1)])
    assert (counts == counts[:, :1]).all()


def test_lengths_are_drawn_around_k2_and_now_and_then_around_half_of_it() -> None:
    drawn = awd_lengths(2_000_000, 100, 7)
    assert drawn.sum() == 2_000_000
    short = drawn[:-1] < 75
    assert 0.04 < short.mean() < 0.06
    for part, centre in ((drawn[:-1][~short], 100), (drawn[:-1][short], 50)):
        assert abs(part.mean() - centre) < 1
        assert 4.5 < part.std() < 5.5
    for base in (1, 4, 8):
        assert awd_lengths(999, base, 7)[:-1].min() == min(base, 5)
        assert awd_lengths(999, base, 7).sum() == 999


def test_tokens_before_a_step_are_the_targets_of_the_steps_before_it() -> None:
    layout, seen = plan(), 0
    for step in range(2 * layout.steps + 3):
        assert layout.tokens_before(step) == seen
        seen += int(layout.chunk(*divmod(step, layout.steps)).count.sum())


def test_the_rate_of_a_step_is_that_of_the_schedule_times_length_over_k2() -> None:
    layout, schedule = plan(), InverseSqrt(warmup=3)
    both = paced(schedule, layout)
    for step in range(2 * layout.steps):
        length = int(layout.chunk(*divmod(step, layout.steps)).count.max())
        assert both(step, 50) == pytest.approx(schedule(step, 50) * length / 20)
    assert paced(schedule, plan(tbptt=JITTER.evaluation)) is schedule


def test_reading_from_a_step_on_gives_what_the_uninterrupted_run_reads() -> None:
    accumulate = 3
    stream = Stream(np.arange(SIZE) % 7, np.array([0, 500, SIZE]), START)
    for tbptt in (
        JITTER,
        TBPTT(k1=20, k2=60, carry=True, reset="never"),
        TBPTT(k1=9, k2=27, carry=False, reset="never"),
    ):
        layout, fresh = plan(tbptt=tbptt), plan(tbptt=tbptt)
        for first in (1, layout.steps - 1, layout.steps + 2):
            whole = TrainLoader(stream, layout, accumulate=accumulate)
            rest = TrainLoader(stream, fresh, accumulate=accumulate, first_step=first)
            for one, two in zip(islice(whole, first * accumulate, (first + 3) * accumulate), rest, strict=False):
                assert torch.equal(one.tokens, two.tokens)
                assert torch.equal(one.targets, two.targets)
                assert all(map(torch.equal, *([past.tokens for past in batch.warmup_chunks] for batch in (one, two))))
                assert len(one.warmup_chunks) == len(two.warmup_chunks)
                assert (one.advance, one.lanes, one.total) == (two.advance, two.lanes, two.total)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_jittered_gradients_are_the_same_however_the_lanes_are_cut(name: str) -> None:
    whole, parts = (Setting(Case(name, ()), 6, time=40, jitter="awd", accumulate=n) for n in (1, 3))
    widths = Counter(lengths(whole.plan, 0))
    assert len(widths) > 2
    for _ in range(whole.plan.steps + 2):
        assert_near(parts.step(), whole.step())


def test_a_run_of_random_chunk_lengths_records_their_tokens_and_the_rates_of_their_lengths(
    tmp_path: Path, seqtrain: Seqtrain
) -> None:
    words = (*OPTIONS, "tbptt.jitter=awd", "schedule=constant", "schedule.warmup=0", "trainer.max_steps=12")
    answer = seqtrain("train", *words, "trainer.validate_every=5", "run_dir=run", cwd=corpus(tmp_path))
    assert answer.rc == 0, answer.err
    records = [record for record in Run(tmp_path / "run").metrics() if "lr" in record]
    tokens = np.diff([0, *(record["tokens"] for record in records)])
    rates = np.array([record["lr"] for record in records])
    assert rates / rates[0] == pytest.approx(tokens / tokens[0])
    assert len(set(tokens.tolist())) > 2


def test_overlapping_windows_need_a_state_although_none_is_carried() -> None:
    model = Case("lstm", ()).make()
    model.capabilities &= ~Capability.STATEFUL
    windows = TBPTT(k1=2, k2=6, carry=False, reset="never")
    assert incompatibility(model, next_token(model), windows, 64) == (
        "tbptt.k1=2: a window is read in parts, from state to state, and model=lstm has no state"
    )
    assert incompatibility(model, next_token(model), TBPTT(k1=6, k2=6, carry=False, reset="never"), 64) is None
