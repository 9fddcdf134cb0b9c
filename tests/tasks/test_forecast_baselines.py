"""Laws of what stands beside a forecast: a season that is found, waves of a year, and series with holes."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seqtrain.data.preprocess import prepare_series
from seqtrain.data.sources.ucr import UCR
from seqtrain.data.values.scaling import find_season
from seqtrain.data.values.series import Series, SeriesSplit
from seqtrain.tasks.baselines import forecasts, series
from seqtrain.tasks.forecast import Forecast
from tests.support.series import prepared, table

DAYS = 1825


def daily(*, holes: float = 0.0) -> str:
    """Five years of days with a cycle of a year and noise, as a user has them."""
    generator = np.random.default_rng(0)
    dates = np.datetime64("2015-01-01") + np.arange(DAYS)
    values = 10 + 5 * np.sin(2 * np.pi * np.arange(DAYS) / 365.2425) + generator.normal(size=DAYS)
    cells = np.where(generator.random(DAYS) < holes, "", values.round(3).astype(str))
    return "Date,Temp\n" + "".join(f"{date},{cell}\n" for date, cell in zip(dates, cells, strict=True))


def baselines(folder: Path, content: str) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Those of validation, 16 days ahead of 64, and what is said."""
    preprocessor, rows = prepared(table(folder, content))
    task = Forecast(
        horizon=16, distribution="point", relative=True, patch=1, dim=2, max_length=64, preprocessor=preprocessor
    )
    said: list[str] = []
    return task.baselines(rows["train"], rows["validation"], preprocessor, said.append), said


def test_waves_of_a_year_leave_the_noise_of_a_yearly_cycle(tmp_path: Path) -> None:
    found, _ = baselines(tmp_path, daily())
    assert found["harmonics"]["mse_original"] == pytest.approx(1.0, rel=0.1)
    assert found["harmonics"]["mse"] < found["ar"]["mse"] < found["last_value"]["mse"]


def test_an_autoregression_stays_beside_series_with_holes_and_says_how(tmp_path: Path) -> None:
    found, said = baselines(tmp_path, daily(holes=0.3))
    assert found["ar"]["mse"] < 0.3  # the mean of train has about 1
    assert any("train has no 80 values in a row; missing ones are replaced" in line for line in said)


class Mean:
    """A model with the interface of statsforecast that forecasts the mean of what it is fitted to."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def forecast(self, y: np.ndarray, h: int) -> dict[str, np.ndarray]:
        return {"mean": np.full(h, y.mean())}


def statsforecast(monkeypatch: pytest.MonkeyPatch, model: type[Mean] = Mean) -> None:
    models: Any = ModuleType("statsforecast.models")
    models.AutoETS = models.Theta = model
    monkeypatch.setitem(sys.modules, "statsforecast", ModuleType("statsforecast"))
    monkeypatch.setitem(sys.modules, "statsforecast.models", models)


def test_smoothing_and_theta_are_fitted_to_what_a_window_holds_or_repeat_its_last_value():
    class Raises(Mean):
        def forecast(self, y: np.ndarray, h: int) -> dict[str, np.ndarray]:
            raise RuntimeError("too short")

    values = np.random.default_rng(0).normal(size=(5, 9, 2))
    values[1, :, 0] = 3.0  # nothing to fit
    assert forecasts.smoothed(Mean(), values, 4) == pytest.approx(np.repeat(values.mean(1, keepdims=True), 4, 1))
    assert forecasts.smoothed(Raises(), values, 2) == pytest.approx(np.repeat(values[:, -1:], 2, 1))


def test_smoothing_and_theta_stand_beside_a_forecast_where_their_package_is_installed(tmp_path, monkeypatch):
    statsforecast(monkeypatch)
    found, _ = baselines(tmp_path, daily())
    assert found["ets"] == found["theta"]
    assert found["ets"]["mse"] < 1.0
    monkeypatch.setitem(sys.modules, "statsforecast.models", None)
    without, _ = baselines(tmp_path, daily())
    assert without == {name: figures for name, figures in found.items() if name not in forecasts.SMOOTHERS}


def test_a_season_is_told_only_where_a_window_holds_it_twice_and_too_many_fits_are_left_out(monkeypatch):
    statsforecast(monkeypatch)
    said: list[str] = []
    windows: Any = SimpleNamespace(
        history=48,
        lengths=np.zeros(forecasts.MAX_FITS["ets"] // 2),
        reading=SimpleNamespace(series=SimpleNamespace(values=np.zeros((9, 2)))),
    )
    for season, told in ((24, 24), (25, 1)):
        found = forecasts.smoothing_models(windows, season, said.append)
        assert [model.options["season_length"] for model in found.values()] == [told, told]
    assert said == []
    windows.lengths = np.zeros(forecasts.MAX_FITS["ets"])
    assert list(forecasts.smoothing_models(windows, 24, said.append)) == ["theta"]
    assert said == ["ets is left out: fitting 6,000 windows and channels takes minutes"]


def test_a_season_is_found_beside_a_trend_noise_and_missing_values() -> None:
    for season, slope in product((7, 12, 24, 365), (0.0, 0.01)):
        generator = np.random.default_rng(season)
        time = np.arange(4 * season + 200)
        values = np.sin(2 * np.pi * time / season) + slope * time + 0.3 * generator.normal(size=len(time))
        values[generator.random(len(time)) < 0.1] = np.nan
        assert abs(find_season(split(values)) - season) <= season // 25, slope


def test_no_season_is_found_in_noise_and_in_what_noise_leaves_behind() -> None:
    generator = np.random.default_rng(1)
    for kept in (0.0, 0.6, 0.9):
        values = [0.0]
        for draw in generator.normal(size=1500):
            values.append(kept * values[-1] + draw)
        assert find_season(split(np.array(values))) == 1


def split(values: np.ndarray) -> SeriesSplit:
    offsets = np.array([0, len(values)])
    whole = Series(values[:, None], np.zeros((len(values), 0)), None, offsets, ("",), ("a",))
    return SeriesSplit(whole, offsets[:1], offsets[1:])


# -- of whole series with a label or a number --------------------------------------------------------------------


def some(*lengths: int, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(length, 2)).cumsum(0) for length in lengths]


def test_the_nearest_series_by_euclid_is_the_one_with_the_least_sum_of_squares():
    train, split = some(*[9] * 80), some(*[9] * 70, seed=1)
    expected = [int(np.argmin([((one - other) ** 2).sum() for other in train])) for one in split]
    assert series.nearest(train, split).euclid.tolist() == expected


def test_a_series_stays_nearest_to_itself_at_another_length():
    train = some(12, 12, 12)
    stretched = [series.resampled([values], 20)[0] for values in train]
    assert series.nearest(train, stretched).euclid.tolist() == [0, 1, 2]


def test_ridge_finds_a_number_that_is_linear_in_a_feature():
    train, split = some(*[15] * 200), some(*[15] * 20, seed=1)
    means = np.array([[values.mean(0)[0]] for values in train])
    found = series.ridge(series.features(train), means, series.features(split))[:, 0]
    assert found == pytest.approx([values.mean(0)[0] for values in split], abs=0.1)


def test_missing_values_are_interpolated_between_those_beside_them(tmp_path):
    rows = "".join(f"{n},?,{n + 4},?:{'xy'[n % 2]}\n" for n in range(10))
    (tmp_path / "a_TRAIN.ts").write_text(f"@classLabel true x y\n@data\n{rows}")
    preprocessor, prepared = prepare_series(
        UCR(path=str(tmp_path)), ("train",), ("values", "label"), preprocessor=None, say=lambda line: None
    )
    steps = [np.diff(values[:, 0]) for values in series.scaled_series(prepared["train"], preprocessor)]
    assert preprocessor.series is not None
    for each in steps:
        assert each * preprocessor.series.std[0] == pytest.approx([2, 2, 0])


def test_without_a_package_for_it_warping_is_left_out_with_a_line(monkeypatch):
    for name in ("aeon", "aeon.distances"):
        monkeypatch.setitem(sys.modules, name, None)
    found = series.nearest(some(5, 5), some(5))
    assert found.dtw is None
    assert found.reason == series.DTW_NEEDED
