"""A checkpoint of any number of processes and micro-batches is taken up by any other, lane by lane, sum by sum."""

from __future__ import annotations

from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import deal
from seqtrain.models.base import State
from seqtrain.training import learner as module
from seqtrain.training.learner import Learner
from tests.support.model_cases import Case, assert_near, next_token
from tests.training.test_learner import Text

Layout = tuple[int, int]  # processes, and micro-batches of each
LAYOUTS: list[Layout] = [(1, 1), (1, 4), (2, 2), (4, 1), (2, 8)]
ADAMW = partial(torch.optim.SGD, lr=0.5)
PLATEAU = partial(torch.optim.lr_scheduler.ReduceLROnPlateau, patience=3)


def whole(lanes: int) -> State:
    """A state whose every number tells its lane."""
    return {"hidden": torch.arange(lanes * 6.0).view(lanes, 2, 3), "filled": torch.arange(lanes)}


def processes(layout: Layout, lanes: int) -> list[Learner]:
    """The learner of each process; Lightning is not there."""
    found = []
    for rank in range(layout[0]):
        model = Case("lstm", ()).make()
        made = Learner(
            model=model,
            task=next_token(model),
            carry=True,
            lanes=lanes,
            facts={},
            seed=0,
            optimizer=ADAMW,
            schedule=PLATEAU,
        )
        strategy = SimpleNamespace(restore_checkpoint_after_setup=False)
        trainer = SimpleNamespace(
            global_rank=rank, world_size=layout[0], accumulate_grad_batches=layout[1], strategy=strategy
        )
        made.trainer = made.kept = trainer  # type: ignore[assignment] - the learner refers weakly
        made.configure_optimizers()
        found.append(made)
    return found


def shares(layout: Layout, rank: int, lanes: int) -> list[slice]:
    """What the loader hands the micro-batches of a process."""
    world, micro = layout
    return [deal(lanes, world * micro, rank * micro + share) for share in range(micro)]


def saved(layout: Layout, lanes: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the first process writes, once all have told it what they hold."""
    learners = processes(layout, lanes)
    for rank, each in enumerate(learners):
        for share in shares(layout, rank, lanes):
            each.carried.put(share, {name: value[share] for name, value in whole(lanes).items()})
        each.sums.add({"loss": (torch.tensor(10.0**rank, dtype=torch.float64), rank + 1)})
        each.progress.own, each.progress.fingerprint, each.progress.skipped = 100 + rank, 77, 5
        each.progress.skipped_in_a_row = 2
        assert each.plateau is not None
        each.plateau.step(3.0)
    told: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "all_gather", lambda value: told.append(value) or [value])
        for each in learners:
            each.on_save_checkpoint({})
        patch.setattr(module, "all_gather", lambda value: told)
        checkpoint: dict[str, Any] = {}
        learners[0].on_save_checkpoint(checkpoint)
    return checkpoint


def test_the_loader_hands_each_process_the_lanes_that_it_takes_up() -> None:
    lanes = 32
    plan = Text().plan(lanes)
    for layout in LAYOUTS:
        world, micro = layout
        for rank in range(world):
            loader = TrainLoader(Text().stream(), plan, accumulate=micro, world=world, rank=rank)
            for step in range(2):
                found = [batch.lanes for batch in islice(loader, step * micro, (step + 1) * micro)]
                assert found == shares(layout, rank, lanes), layout


def assert_taken_up(checkpoint: dict[str, Any], before: Layout, after: Layout, lanes: int) -> None:
    learners = processes(after, lanes)
    for rank, each in enumerate(learners):
        each.on_load_checkpoint(checkpoint)
        each.on_fit_start()
        assert set(each.carried.slices) == {(share.start, share.stop) for share in shares(after, rank, lanes)}
        for share in shares(after, rank, lanes):
            taken = each.carried.take(share)
            assert taken is not None
            assert_near(taken, {name: value[share] for name, value in whole(lanes).items()}, 0)
        progress = each.progress
        assert (progress.fingerprint, progress.skipped, progress.skipped_in_a_row) == (77, 5, 2)
        assert each.plateau is not None
        assert each.plateau.best == 3.0
        if after[0] == before[0]:  # in another order they would have other bits
            assert each.sums.read()["loss"] == (10.0**rank, rank + 1)
    world = before[0]
    sums = [each.sums.read().get("loss", (0.0, 0)) for each in learners]
    assert [sum(part) for part in zip(*sums, strict=True)] == [
        sum(10.0**rank for rank in range(world)),
        sum(range(1, world + 1)),
    ]
    assert sum(each.progress.own for each in learners) == sum(100 + rank for rank in range(world))
    assert {each.progress.tokens for each in learners} == {sum(100 + rank for rank in range(world))}


def test_another_layout_takes_up_lanes_sums_and_tokens_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in LAYOUTS:
        for lanes in (16, 32):
            checkpoint = saved(before, lanes, monkeypatch)
            for after in LAYOUTS:
                assert_taken_up(checkpoint, before, after, lanes)
