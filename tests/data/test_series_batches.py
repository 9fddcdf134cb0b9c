"""Laws of batches of series: windows and streams ask the same questions, each of them once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.values import SeriesStream, WindowBatch, Windows
from seqtrain.data.values import scaling
from seqtrain.data.values.reading import Reading
from seqtrain.data.values.series import Series, SeriesSplit
from seqtrain.errors import UserError
from tests.support.series import LENGTHS, Held, numbers, prepared

HISTORY, HORIZON = 12, 5
CHUNKS = TBPTT(k1=7, k2=7, carry=True, reset="document")


def parts(source: Held, split: str):
    preprocessor, rows = prepared(source)
    chosen = rows[split].series
    assert chosen is not None
    assert preprocessor.series is not None
    return chosen, Reading(source.series, preprocessor.series, np.float64)


def windows(source: Held, split: str, **options) -> Windows:
    return Windows(*parts(source, split), history=HISTORY, horizon=HORIZON, **options)


def stream(source: Held, split: str, context: int = HISTORY) -> SeriesStream:
    return SeriesStream(*parts(source, split), horizon=HORIZON, context=context)


def asked_of_a_stream(source: Held, split: str, lanes: int, context: int = HISTORY) -> dict[int, list[np.ndarray]]:
    """The targets of each row, as often as they are asked for."""
    batcher = stream(source, split, context)
    plan = StreamPlan(documents=batcher.documents, lanes=lanes, tbptt=CHUNKS, seed=0, shuffle=False)
    origins = batcher.targets
    found: dict[int, list[np.ndarray]] = {}
    for step in range(plan.steps):
        chunk = plan.chunk(0, step)
        rows, real = batcher._places(chunk, slice(None))
        targets = batcher.batch(chunk, slice(None)).targets.numpy()
        is_asked = origins.is_origin(rows, batcher.reading.series_of(rows)) & real
        assert np.isnan(targets[~is_asked]).all()
        for row, target in zip(rows[is_asked], targets[is_asked], strict=True):
            found.setdefault(int(row), []).append(target)
    return found


def asked_of_windows(source: Held, split: str) -> dict[int, np.ndarray]:
    examples = windows(source, split)
    index = np.arange(len(examples.lengths))
    batch = examples.collate(index, 0, examples.totals(index, 0))
    assert len(set(batch.rows.tolist())) == len(index)
    return dict(zip(batch.rows.tolist(), batch.targets[:, 0].numpy(), strict=True))


def test_windows_and_streams_ask_the_same_questions_once():
    for channels, split, lanes in product(("together", "apart"), ("validation", "test"), (1, 3)):
        source = Held(numbers(), channels=channels)
        of_windows = asked_of_windows(source, split)
        of_stream = asked_of_a_stream(source, split, lanes)
        assert sorted(of_windows) == sorted(of_stream), (channels, split, lanes)
        count = sum(int(length * 0.2) - HORIZON + 1 for length in LENGTHS)
        assert len(of_windows) == count * (2 if channels == "apart" else 1), (channels, split, lanes)
        for row, (targets, *again) in of_stream.items():
            assert not again
            assert np.array_equal(targets, of_windows[row], equal_nan=True), (channels, split, lanes)


def test_a_stream_of_train_asks_all_rows_whose_horizon_lies_in_train():
    asked = asked_of_a_stream(Held(numbers()), "train", 2, context=0)
    assert len(asked) == sum(length - 2 * int(length * 0.2) - HORIZON + 1 for length in LENGTHS)
    assert all(len(times) == 1 for times in asked.values())


def test_a_window_ends_with_the_value_before_its_first_target():
    values = np.arange(sum(LENGTHS), dtype=np.float64)[:, None]
    examples = windows(Held(values), "train")
    index = np.arange(len(examples.lengths))
    batch = examples.collate(index, 0, {"loss": 1})
    reading = examples.reading
    read = batch.tokens[..., 0].numpy() * reading.std[0, 0] + reading.mean[0, 0]
    asked = batch.targets[:, 0, :, 0].numpy() * reading.std[0, 0] + reading.mean[0, 0]
    rows = batch.rows.numpy()[:, None]
    np.testing.assert_allclose(read, rows + np.arange(-HISTORY, 0), rtol=1e-12)
    np.testing.assert_allclose(asked, rows + np.arange(HORIZON), rtol=1e-12)
    assert batch.ahead is None


def test_rows_that_are_predicted_are_read_on_demand_and_each_row_once() -> None:
    source = Held(numbers(missing=0.4))
    examples = windows(source, "train", reads_ahead=True)
    index = np.arange(7)
    batch = examples.collate(index, 0, {"loss": 1})
    # What is read before and inside the horizon are the rows of one longer window.
    whole = examples.reading.features(batch.rows.numpy()[:, None] + np.arange(1 - HISTORY, HORIZON))
    assert batch.ahead is not None
    assert np.array_equal(torch.cat([batch.tokens[:, :-1], batch.ahead], 1).numpy(), whole)
    assert (np.asarray(examples.lengths) == HISTORY + HORIZON - 1).all()
    assert batch.count == whole.shape[0] * whole.shape[1]
    direct = windows(source, "train").collate(index, 0, {"loss": 1})
    assert torch.equal(direct.tokens, batch.tokens)
    assert torch.equal(direct.targets.nan_to_num(), batch.targets.nan_to_num())


def test_no_window_lies_in_two_series():
    examples = windows(Held(numbers()), "train")
    rows = examples.rows(np.arange(len(examples.lengths)))
    first, last = examples.reading.series_of(rows - HISTORY), examples.reading.series_of(rows + HORIZON - 1)
    assert np.array_equal(first, last)


def test_patches_are_the_same_rows_side_by_side():
    source = Held(numbers())
    index = np.arange(4)
    ones, threes = (windows(source, "train", patch=patch).collate(index, 0, {"loss": 1}) for patch in (1, 3))
    assert threes.tokens.shape[1] == HISTORY // 3
    assert torch.equal(threes.tokens.reshape(ones.tokens.shape), ones.tokens)
    assert torch.equal(threes.lengths, torch.full((4,), HISTORY // 3))
    with pytest.raises(UserError, match=r"task\.patch=5"):
        windows(source, "train", patch=5)


def test_a_horizon_beyond_the_split_is_one_line():
    short = Held(numbers(), rows=(40, 4, 4))
    for make in (windows, stream):
        with pytest.raises(UserError, match=r"task\.horizon=5: no series has") as caught:
            make(short, "validation")
        assert len(caught.value.lines) == 1


def test_series_too_short_for_a_window_are_left_out_and_said():
    source = Held(numbers(lengths=(90, 25)), lengths=(90, 25))
    examples = windows(source, "train")
    assert examples.left_out == 1
    assert examples.remark == "1 series are too short for a window of data.max_length and task.horizon"
    rows = examples.rows(np.arange(len(examples.lengths)))
    assert (examples.reading.series_of(rows) == 0).all()


def test_a_step_counts_the_targets_of_all_lanes_and_missing_ones_not():
    source = Held(numbers(missing=0.4))
    batcher = stream(source, "train", 0)
    plan = StreamPlan(documents=batcher.documents, lanes=4, tbptt=CHUNKS, seed=0, shuffle=False)
    for step in range(plan.steps):
        chunk = plan.chunk(0, step)
        whole = batcher.batch(chunk, slice(None))
        present = int((~whole.targets.isnan()).sum())
        halves = [batcher.batch(chunk, lanes) for lanes in (slice(0, 1), slice(1, 4))]
        assert sum(half.num_targets for half in halves) == whole.num_targets == present
        assert {half.total for half in halves} == {max(present, 1)}
    examples = windows(source, "train")
    index = np.arange(9)
    assert examples.totals(index, 0)["loss"] == examples.collate(index, 0, {}).num_targets < 9 * HORIZON * 2


def test_a_step_without_a_target_divides_by_one():
    values = numbers(columns=1)
    values[:20] = np.nan
    examples = windows(Held(values), "train")
    assert examples.totals(np.array([0]), 0) == {"loss": 1}
    batch = examples.batch(ExamplePlan(lengths=examples.lengths, batch_tokens=None, batch_size=1, seed=0, shuffle=False)
                           .chunk(0, 0), slice(0, 1))  # fmt: skip
    assert isinstance(batch, WindowBatch)
    assert batch.num_targets == 0
    batcher = stream(Held(values), "train", 0)
    plan = StreamPlan(documents=batcher.documents[:2], lanes=1, tbptt=CHUNKS, seed=0, shuffle=False)
    assert batcher.batch(plan.chunk(0, 0), slice(None)).total == 1


def test_a_split_in_which_nothing_is_to_be_predicted_is_refused_and_no_perfect_result():
    values = np.concatenate([np.arange(40.0), np.full(20, np.nan)])[:, None]
    table = Series(values, np.zeros((60, 0)), None, np.array([0, 60]), ("",), ("value",))
    train = SeriesSplit(table, np.array([0]), np.array([40]))
    found = scaling.fit(train, missing="mask", features=(), season=None)
    with pytest.raises(UserError, match="all values of a split are missing"):
        Windows(SeriesSplit(table, np.array([40]), np.array([60])), Reading(table, found), history=8, horizon=4)
