"""Laws of the autoregression by least squares, of the windows it reads, and of forecasts that learn nothing."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from seqtrain.errors import UserError
from seqtrain.tasks.baselines import autoregression, forecasts
from seqtrain.tasks.baselines.autoregression import Autoregression, choose_order, windows
from tests.support.series import blocks_of

NAN = float("nan")


def noise(length: int, channels: int = 2, seed: int = 0) -> np.ndarray:
    """Values that depend on those before them, around a mean far from 0."""
    steps = np.random.default_rng(seed).normal(size=(length, channels))
    for row in range(2, length):
        steps[row] += 0.6 * steps[row - 1] - 0.3 * steps[row - 2]
    return steps + 1000.0


def stacked(values: np.ndarray, length: int) -> np.ndarray:
    """All windows of all channels, by a loop: (n, length)."""
    rows = []
    for begin in range(len(values) - length + 1):
        rows.extend(values[begin : begin + length].T)
    return np.array(rows).reshape(-1, length)


def least_squares(rows: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias by numpy's own solver on all rows at once."""
    inputs = np.column_stack([rows[:, :order] - 1000.0, np.ones(len(rows))])
    found = np.linalg.lstsq(inputs, rows[:, order:], rcond=None)[0]
    return found[:-1], found[-1] - 1000.0 * found[:-1].sum(0)


def test_normal_equations_of_blocks_give_least_squares_of_the_whole() -> None:
    values = noise(300)
    weights, bias = least_squares(stacked(values, 8), 5)
    for rows in (1, 7, 1000):
        model = Autoregression.fit(blocks_of(values, rows=rows), 5, 3)
        np.testing.assert_allclose(model.weights, weights, rtol=0, atol=1e-9)
        np.testing.assert_allclose(model.bias, bias, rtol=0, atol=1e-6)  # 1,000 times an error of weights


def test_no_window_goes_from_one_series_to_another() -> None:
    values = noise(120)
    boundaries = [0, 50, 53, 120]  # the second one is shorter than a window
    model = Autoregression.fit(blocks_of(values, boundaries, rows=11), 4, 2)
    rows = np.concatenate([stacked(values[:50], 6), stacked(values[53:], 6)])
    weights, _ = least_squares(rows, 4)
    np.testing.assert_allclose(model.weights, weights, rtol=0, atol=1e-9)
    assert model.num_windows == len(rows)


def test_windows_with_a_missing_value_are_left_out_and_counted() -> None:
    values = noise(200)
    values[40, 0] = NAN
    values[90:95, 1] = NAN
    model = Autoregression.fit(blocks_of(values, rows=13), 4, 2)
    rows = stacked(values, 6)
    whole = ~np.isnan(rows).any(1)
    weights, _ = least_squares(rows[whole], 4)
    np.testing.assert_allclose(model.weights, weights, rtol=0, atol=1e-9)
    assert model.num_windows == whole.sum() == 2 * 195 - 16
    asked = np.array([[1.0, NAN, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    assert np.isnan(model.predict(asked)).tolist() == [[True, True], [False, False]]


def test_a_series_without_a_whole_window_is_told() -> None:
    values = noise(100)
    values[::5] = NAN
    with pytest.raises(UserError, match="order 4: train has no 6 values in a row"):
        Autoregression.fit(blocks_of(values), 4, 2)
    with pytest.raises(UserError, match="order 4"):
        Autoregression.fit(blocks_of(noise(5)), 4, 2)


def test_exactly_dependent_inputs_have_weights_that_forecast_exactly() -> None:
    time = np.arange(400.0)
    wave = np.sin(time / 5)[:, None] + 3.0  # two values of it tell all others: 30 inputs of rank 2
    model = Autoregression.fit(blocks_of(wave), 30, 4)
    fresh = np.sin(np.arange(500.0, 534.0) / 5)[None] + 3.0
    np.testing.assert_allclose(model.predict(fresh[:, :30]), fresh[:, 30:], rtol=0, atol=1e-7)
    assert np.abs(model.weights).max() < 1.0


def test_a_constant_channel_is_forecast_as_itself() -> None:
    for value in (0.0, 0.1, 1e9 / 3):
        model = Autoregression.fit(blocks_of(np.full((300, 1), value), rows=17), 6, 3)
        np.testing.assert_allclose(model.predict(np.full((1, 6), value)), value, rtol=1e-12)
        # Nothing is known of how it moves, so nothing is made of a move.
        assert np.array_equal(model.weights, np.zeros((6, 3))), value


def test_the_order_is_the_one_that_forecasts_validation_best() -> None:
    values, context = np.concatenate([noise(4000), noise(2000, seed=3)]), 40
    blocks, validation = blocks_of(values[:4000]), blocks_of(values[4000 - context :])
    assert choose_order(blocks, validation, [40, 1, 2, 5000], 1, context=context) == 2
    # All orders forecast the same rows: those behind the context.
    rows = stacked(values[4000 - context :], context + 1)
    errors = {}
    for order in (1, 2, 40):
        model = Autoregression.fit(blocks, order, 1)
        errors[order] = np.mean((model.predict(rows[:, context - order : context]) - rows[:, context:]) ** 2)
    assert min(errors, key=errors.__getitem__) == 2
    with pytest.raises(UserError, match="has no window without a missing value"):
        choose_order(blocks, validation, [5000], 1)


def test_windows_come_in_parts_and_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(60.0).reshape(30, 2)
    whole = np.concatenate(list(windows(blocks_of(values), 4)))
    monkeypatch.setattr("seqtrain.tasks.baselines.autoregression.MAX_VALUES", 25)
    parts = list(windows(blocks_of(values, rows=7), 4))
    assert max(map(len, parts)) == 3
    assert np.array_equal(np.concatenate(parts), whole)
    assert whole[:, 0, 0].tolist() == list(range(0, 54, 2))
    skipped = np.concatenate(list(windows(blocks_of(values, [0, 9, 30], rows=3), 4, skip=5)))
    assert skipped[:, 0, 0].tolist() == [10.0, *range(28, 54, 2)]


def test_last_value_seasonal_naive_and_drift_on_numbers_one_can_check() -> None:
    window = np.array([[1.0, 2.0, 4.0, 3.0, 5.0, 7.0]])
    assert forecasts.last_value(window, 2).tolist() == [[7.0, 7.0]]
    assert forecasts.seasonal_naive(window, 5, period=3).tolist() == [[3.0, 5.0, 7.0, 3.0, 5.0]]
    assert forecasts.drift(window, 2) == pytest.approx(np.array([[8.2, 9.4]]))
    both = np.stack([window, 10 * window], axis=2)
    for forecast in (forecasts.last_value, forecasts.drift):
        np.testing.assert_allclose(forecast(both, 2)[..., 1], 10 * forecast(window, 2))


def test_simple_forecasts_go_by_what_is_not_missing() -> None:
    window = np.array([[1.0, NAN, 3.0, NAN, 5.0, NAN], [NAN] * 6, [NAN, 2.0, NAN, NAN, NAN, NAN]])
    assert forecasts.last_value(window, 1)[[0, 2], 0].tolist() == [5.0, 2.0]
    # The last value stands one row back: the line has gone on since.
    assert forecasts.drift(window, 2)[[0, 2]].tolist() == [[7.0, 8.0], [2.0, 2.0]]
    found = forecasts.seasonal_naive(window, 3, period=3)
    assert found[0].tolist() == pytest.approx([1.0, 5.0, 3.0])
    for answers in (forecasts.last_value(window, 1), forecasts.drift(window, 1), found):
        assert np.isnan(answers[1]).all()


def test_the_published_figure_of_a_linear_map_on_etth1_is_reached_by_336_values(shared_data: Path) -> None:
    source = shared_data / "ett" / "ETTh1.csv"
    if not source.is_file():
        pytest.skip(f"{source} is not there")
    with source.open(encoding="utf-8") as lines:
        values = np.array([row[1:] for row in csv.reader(lines)][1:], dtype=np.float64)
    months = 30 * 24
    train = values[: 12 * months]
    values = (values - train.mean(0)) / train.std(0)
    model = Autoregression.fit(blocks_of(values[: 12 * months]), 336, 96)
    test = blocks_of(values[16 * months - 336 : 20 * months])  # the first window ends where validation does
    total, count = autoregression.squared_error(model, test)
    assert count == (4 * months - 96 + 1) * 96 * 7
    assert total / count == pytest.approx(0.370, abs=0.002)
    absolute = 0.0
    for block in windows(test, 336 + 96):
        rows = block.transpose(0, 2, 1)
        absolute += np.abs(model.predict(rows[:, :336]) - rows[:, 336:]).sum()
    assert absolute / count == pytest.approx(0.392, abs=0.002)
