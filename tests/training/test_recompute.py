"""Laws of tbptt.recompute: the numbers of reading a step at once, in the memory of one of its pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.analysis.profile_memory import Allocations
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.values import SeriesStream
from seqtrain.data.values import reading
from seqtrain.models.base import Capability
from seqtrain.tasks import output
from seqtrain.training import carried_state
from seqtrain.training.compatibility import incompatibility
from seqtrain.training.cost import ReadPattern, activations, training_flops
from tests.conftest import Seqtrain
from tests.journeys import walk
from tests.support.model_cases import Case, assert_near, next_token
from tests.support.series import Held, numbers, prepared
from tests.support.streams import LANES, Setting
from tests.support.tiny import OPTIONS, assert_twins, corpus, records

DOCUMENTS = (3, 1, 11, 6, 5, 1, 4)
NAMES = pytest.mark.parametrize("name", ["lstm", "gpt", "min_gru"])
CUTS: list[dict[str, Any]] = [
    {},
    {"carry": False},
    {"accumulate": 3},
    {"jitter": "awd"},
    {"k1": 4},
    {"k1": 2, "carry": False},
    {"lengths": DOCUMENTS, "reset": "document"},
    {"lengths": DOCUMENTS, "reset": "document", "k1": 4},
]


def in_pieces(name: str, k2: int, length: int | None, **options: Any) -> Setting:
    """A learner that reads its steps in pieces of `length` tokens."""
    model = {key: options.pop(key) for key in ("dropout", "num_layers") if key in options}
    setting = Setting(Case(name, tuple(model.items())), k2, **options)
    setting.learner.recompute = length
    return setting


@NAMES
def test_loss_gradient_and_carried_state_are_those_of_reading_at_once(name: str) -> None:
    for cut, length in [*((cut, 3) for cut in CUTS), ({}, 1), ({}, 8), ({"k1": 4}, 1)]:
        whole, pieces = in_pieces(name, 8, None, **cut), in_pieces(name, 8, length, **cut)
        for _ in range(whole.plan.steps + 2):  # into the next epoch, whose first chunk resets all lanes
            assert_near(pieces.step(), whole.step())
            total, count = pieces.learner.sums.terms["loss"]
            assert (pytest.approx(total, abs=1e-9), count) == whole.learner.sums.terms["loss"], (cut, length)
            assert_near(pieces.learner.carried.slices, whole.learner.carried.slices)


def test_a_large_vocabulary_is_turned_into_gradients_in_one_of_the_two_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    add = output._add_product
    monkeypatch.setattr(output, "BLOCK", 1)  # so that 128 rows are a block, of 3 lanes of 64 tokens
    monkeypatch.setattr(output, "_add_product", lambda *given: calls.append(1) or add(*given))
    whole = in_pieces("lstm", 128, None, time=128).step()
    at_once = len(calls)
    assert_near(in_pieces("lstm", 128, 64, time=128).step(), whole)
    assert at_once == 3
    assert len(calls) - at_once == 4  # two blocks of each piece


@NAMES
def test_a_piece_drops_the_same_units_when_it_is_read_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gradients() -> list[torch.Tensor]:
        setting = in_pieces(name, 8, 3, dropout=0.5, num_layers=2)
        setting.learner.train()
        torch.manual_seed(0)
        return setting.step()

    found = gradients()
    assert all(gradient.isfinite().all() for gradient in found)
    monkeypatch.setattr(carried_state, "_checkpointed", lambda read, *inputs: read(*inputs))
    assert_near(found, gradients())


def test_pieces_of_series_hold_each_position_and_count_the_targets_that_are_there() -> None:
    source = Held(numbers(missing=0.5))
    preprocessor, rows = prepared(source)
    split, scaling = rows["train"].series, preprocessor.series
    assert split is not None
    assert scaling is not None
    stream = SeriesStream(split, reading.Reading(source.series, scaling, np.float64), horizon=3, context=0)
    cut = TBPTT(k1=20, k2=20, carry=True, reset="document")
    plan = StreamPlan(documents=stream.documents, lanes=2, tbptt=cut, seed=0, shuffle=False)
    for step in range(plan.steps):
        whole = stream.batch(plan.chunk(0, step), slice(0, 2))
        pieces = list(whole.pieces(7))
        for name in ("tokens", "targets", "series"):
            joined = torch.cat([getattr(piece, name) for piece in pieces], 1)
            torch.testing.assert_close(joined, getattr(whole, name), rtol=0, atol=0, equal_nan=True)
        assert sum(piece.count for piece in pieces) == whole.count
        assert [piece.num_targets for piece in pieces] == [int((~piece.targets.isnan()).sum()) for piece in pieces]


@pytest.mark.parametrize("name", ["gpt", "min_gru"])
def test_many_pieces_take_the_memory_of_one(name: str) -> None:
    def peak(k2: int, length: int | None) -> int:
        setting = in_pieces(name, k2, length, time=8192)
        with Allocations((*setting.learner.parameters(), *setting.learner.buffers())) as seen:
            setting.step()
        return seen.peak

    one = peak(256, None)
    assert peak(4096, 256) < 1.3 * one
    assert peak(2048, None) > 4 * one


@NAMES
def test_the_cost_counts_what_is_read_again_and_the_memory_of_a_piece(name: str) -> None:
    setting = in_pieces(name, 12, 5, time=48)
    setting.step()
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        setting.step()
    reading = ReadPattern(12, True, recompute=5)
    if name == "gpt":  # of a recurrent layer torch counts other products
        found = training_flops(setting.model, setting.learner.task, reading)
        assert found == pytest.approx(counter.get_total_flops() / (12 * LANES))
    kept = [
        activations(setting.model, setting.learner.task, LANES, each)
        for each in (reading, ReadPattern(5, True), ReadPattern(12, True))
    ]
    states = sum(value.nbytes for value in setting.model.initial(LANES).values())
    assert kept[0] == kept[1] + 2 * states


def test_pieces_need_a_state_although_none_is_carried() -> None:
    model = Case("lstm", ()).make()
    model.capabilities &= ~Capability.STATEFUL
    windows = TBPTT(k1=6, k2=6, carry=False, reset="never", recompute=2)
    assert incompatibility(model, next_token(model), windows, 64) == (
        "tbptt.recompute=2: a window is read in parts, from state to state, and model=lstm has no state"
    )


@pytest.fixture(scope="module")
def typed(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> walk.Walk:
    folder = corpus(tmp_path_factory.mktemp("recompute"))
    series = "".join(
        f"2024-01-{day:02d} {hour:02d}:00,{day * hour % 17}\n" for day in range(1, 29) for hour in range(24)
    )
    (folder / "series.csv").write_text(f"date,a\n{series}")
    return walk.Walk(seqtrain, folder)


TEXT = (*OPTIONS, "tbptt.k2=64", "model.dropout=0.1", "model.num_layers=2")
SERIES = (
    *("task=forecast", "data=series", "data.path=series.csv", "task.horizon=4", "data.max_length=16", "model=lstm"),
    *("tbptt=carry", "tbptt.k2=64", "tbptt.reset=document", "data.batch_size=1"),
)


@pytest.mark.parametrize("words", [TEXT, SERIES], ids=["text", "series"])
def test_a_training_in_pieces_learns_and_when_killed_ends_with_the_same_bits(
    words: tuple[str, ...], typed: walk.Walk
) -> None:
    task = words[0].replace("=", "-")
    words = (*words, *walk.SMALL, "tbptt.recompute=20", "optimizer.lr=0.03", "schedule=constant")
    whole = typed.train(f"whole-{task}", *words)
    assert_twins(whole, typed.train_killed(f"killed-{task}", *words))
    losses = [record["validation/loss"] for record in records(whole) if "validation/loss" in record]
    assert losses[-1] < losses[0]
    assert typed.evaluate(whole.name, "validation") == pytest.approx(walk.figures(whole), abs=1e-6)


def test_a_training_in_pieces_is_that_at_once_by_the_command_line(typed: walk.Walk) -> None:
    words = (*OPTIONS, *walk.SMALL, "tbptt.k2=64", "trainer.precision=64-true")
    once = typed.train("once", *words)
    pieces = typed.train("pieces", *words, "tbptt.recompute=20")
    assert walk.figures(pieces) == pytest.approx(walk.figures(once), abs=1e-9)
