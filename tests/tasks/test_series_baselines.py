"""Baselines of whole series: the nearest series of train, and ridge on simple features."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from seqtrain.data.preprocess import prepare_series
from seqtrain.data.sources.ucr import UCR
from seqtrain.tasks.baselines import series


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
    for name in ("aeon", "aeon.distances", "tslearn", "tslearn.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    found = series.nearest(some(5, 5), some(5))
    assert found.dtw is None
    assert found.reason == series.DTW_NEEDED
