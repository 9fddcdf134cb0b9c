"""Laws of what a model reads of series: no value tells itself, and nothing after train shapes what train reads."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest
from jaxtyping import Float

from seqtrain.data.values.reading import Reading, Targets
from seqtrain.data.values.series import Series
from tests.support.refused import refusal
from tests.support.series import LENGTHS, Held, numbers, prepared, table

HORIZON = 5
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
WAYS = [("together", "mask"), ("together", "mean"), ("apart", "mask"), ("apart", "mean")]


def reading_of(source: Held) -> Reading:
    scaling = prepared(source)[0].series
    assert scaling is not None
    return Reading(source.series, scaling, np.float64)


def every_row(series: Series) -> np.ndarray:
    return np.arange(len(series.values))[None]


def test_nothing_that_is_read_up_to_a_row_tells_its_value():
    for (channels, missing), value in product(WAYS, (1e6, np.nan)):
        whole = reading_of(Held(numbers(), channels=channels, missing=missing))
        rows = every_row(whole.series)
        before = whole.features(rows)[0]
        places = np.where(~np.isnan(whole.series.values))
        for row, column in list(zip(*places, strict=True))[::17]:
            changed = whole.series.values.copy()
            changed[row, column] = value
            other = Reading(dataclasses.replace(whole.series, values=changed), whole.scaling, np.float64)
            after = other.features(rows)[0]
            differs = np.flatnonzero((before != after).any(1))
            end = whole.series.offsets[whole.series_of(np.array([row]))[0] + 1]
            where = f"{channels}, {missing}, {value} in row {row}"
            assert (differs > row).all(), where
            assert (differs < end).all(), where  # nor does a series tell of another
            assert row + 1 == end or row + 1 in differs, where


def test_values_after_train_change_nothing_of_training():
    values = numbers()
    later = values.copy()
    for begin, length in zip(OFFSETS[:-1], LENGTHS, strict=True):
        train_end = length - 2 * int(length * 0.2)
        later[begin + train_end : begin + length] = np.nan
        later[begin + train_end + 2] = 1e9
    for channels, missing in WAYS:
        source, other = (Held(each, channels=channels, missing=missing) for each in (values, later))
        (preprocessor, rows), (other_preprocessor, other_rows) = prepared(source), prepared(other)
        assert preprocessor.hashes == other_preprocessor.hashes, (channels, missing)
        assert rows["train"].hash == other_rows["train"].hash, (channels, missing)
        assert rows["validation"].hash != other_rows["validation"].hash, (channels, missing)
        split = rows["train"].series
        assert split is not None
        of = [Reading(each.series, preprocessor.series, np.float32) for each in (source, other)]
        for begin, end in zip(split.begin, split.end, strict=True):
            train = np.arange(begin, end)[None]
            for read in (Reading.features, lambda each, rows, split=split: Targets(each, split, HORIZON).of(rows)):
                one, two = (read(each, train).tobytes() for each in of)
                assert one == two, (channels, missing)


def test_targets_are_those_of_their_split_alone():
    source = Held(np.arange(sum(LENGTHS) * 2, dtype=np.float64).reshape(-1, 2))
    preprocessor, rows = prepared(source)
    reading = Reading(source.series, preprocessor.series, np.float64)
    for split in rows.values():
        assert split.series is not None
        targets = Targets(reading, split.series, HORIZON).of(every_row(source.series))[0]
        found = targets * reading.std[0] + reading.mean[0]
        for row in range(len(found)):
            series = reading.series_of(np.array([row]))[0]
            begin, end = split.series.begin[series], split.series.end[series]
            if begin <= row and row + HORIZON <= end:
                np.testing.assert_allclose(found[row], source.values[row : row + HORIZON], rtol=1e-12)
            else:
                assert np.isnan(found[row]).all()


def expected_features(values: Float[np.ndarray, "n C"], reading: Reading) -> np.ndarray:
    """The same features by a plain loop: values, whether they are seen, log1p of the steps since one was seen."""
    told = []
    for begin, length in zip(OFFSETS[:-1], LENGTHS, strict=True):
        since = np.zeros(values.shape[1])
        for row in range(begin, begin + length):
            if row == begin:
                told.append([0.0] * 3 * values.shape[1])
                continue
            newest = (values[row - 1] - reading.mean[0]) / reading.std[0]
            seen = ~np.isnan(newest)
            since = np.where(seen, 0, since + 1)
            told.append([*np.nan_to_num(newest), *seen, *np.log1p(since)])
    return np.array(told)


def test_a_mask_tells_what_was_seen_and_for_how_long_not():
    values = numbers(missing=0.5)
    reading = reading_of(Held(values, time_features=None))
    found = reading.features(every_row(reading.series))[0]
    expected = expected_features(values, reading)
    np.testing.assert_allclose(found[:, : expected.shape[1]], expected, rtol=1e-6, atol=1e-7)
    assert found.shape[1] == expected.shape[1] + 1 == reading.num_features


def test_mean_filling_has_the_mean_of_train_and_no_mask():
    values = numbers(missing=0.5)
    reading = reading_of(Held(values, missing="mean", time_features=None))
    found = reading.features(every_row(reading.series))[0]
    assert found.shape[1] == 3 == reading.num_features
    absent = np.isnan(values[:-1])
    assert (found[1:, :2][absent] == 0).all()


def test_only_columns_that_miss_a_value_in_train_have_a_mask():
    values = numbers(missing=0.0)
    values[85, 0] = np.nan  # in test
    assert reading_of(Held(values)).scaling.masked == (False, False)
    values[10, 1] = np.nan
    assert reading_of(Held(values)).scaling.masked == (False, True)
    assert reading_of(Held(values)).num_features == 2 + 2 + 1 + 2


def test_the_scaling_is_that_of_the_train_rows_of_all_series():
    values = numbers()
    scaling = reading_of(Held(values)).scaling
    train = []
    for begin, length in zip(OFFSETS[:-1], LENGTHS, strict=True):
        train.append(values[begin : begin + length - 2 * int(length * 0.2)])
    np.testing.assert_allclose(scaling.mean[:2], np.nanmean(np.concatenate(train), 0), rtol=1e-12)
    np.testing.assert_allclose(scaling.std[:2], np.nanstd(np.concatenate(train), 0), rtol=1e-12)


def test_the_naive_error_is_that_of_a_season_ago_in_train():
    values = numbers()
    scaling = reading_of(Held(values, season=3)).scaling
    end = LENGTHS[0] - 2 * int(LENGTHS[0] * 0.2)
    errors = np.nanmean(np.abs(values[3:end] - values[: end - 3]), 0) / scaling.std[:2]
    np.testing.assert_allclose(scaling.naive[0], errors, rtol=1e-12)


def test_each_column_apart_is_a_series_with_the_names_scaling_and_times_of_its_rows():
    values = numbers(columns=3)
    together, apart = (reading_of(Held(values, channels=each)) for each in ("together", "apart"))
    assert apart.series.names == tuple(f"s{n} {column}" for n in range(3) for column in "abc")
    # What is known ahead is read once for each column, and summed in another order.
    np.testing.assert_allclose(apart.scaling.mean, together.scaling.mean, rtol=1e-12)
    np.testing.assert_allclose(apart.scaling.std, together.scaling.std, rtol=1e-12)
    assert apart.num_features == 1 + 2 + 1 + 2
    assert apart.series.times is not None
    assert together.series.times is not None
    for number in range(9):
        series, column = divmod(number, 3)
        ours = slice(*apart.series.offsets[number : number + 2])
        theirs = slice(*OFFSETS[series : series + 2])
        assert np.array_equal(apart.series.values[ours, 0], values[theirs, column], equal_nan=True)
        assert np.array_equal(apart.series.known[ours], together.series.known[theirs])
        assert np.array_equal(apart.series.times[ours], together.series.times[theirs])
        assert apart.mean[number, 0] == together.mean[series, column]
        assert apart.std[number, 0] == together.std[series, column]
        assert apart.scaling.naive[number][0] == pytest.approx(together.scaling.naive[series][column], rel=1e-12)
        rows = np.arange(ours.start, ours.stop)[None]
        there = np.arange(theirs.start, theirs.stop)[None]
        np.testing.assert_allclose(apart.known(rows), together.known(there), rtol=1e-9)
        assert np.array_equal(apart.features(rows)[..., 0], together.features(there)[..., column])


def test_hours_and_days_stand_at_their_place_in_the_day_and_the_week(tmp_path):
    days = ["2024-01-01 00:00:00", "2024-01-01 06:00:00", "2024-01-01 12:00:00", "2024-01-08 18:00:00"]
    content = "date,a\n" + "".join(f"{day},{n}\n" for n, day in enumerate([*days, "2024-02-01", "2024-03-01"]))
    source = table(tmp_path, content, time_features=["hour", "weekday"], rows=[4, 1, 1])
    scaling = prepared(source)[0].series
    assert scaling is not None
    place = Reading(source.series, scaling, np.float64).known(np.arange(4)[None])[0]
    np.testing.assert_allclose(place[:, :2], [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-9)
    np.testing.assert_allclose(place[0, 2:], [0, 1], atol=1e-9)
    np.testing.assert_allclose(place[3, 2:], [np.sin(2 * np.pi * 0.75 / 7), np.cos(2 * np.pi * 0.75 / 7)], atol=1e-9)


def test_options_that_fit_no_series_are_one_line():
    for options, words in (
        ({"rows": [60, 1]}, "expected three row counts"),
        ({"rows": [70, 1, 1]}, "series s1 has 61 rows; use fewer"),
        ({"time_features": ["minute"]}, "expected some of hour, weekday, yearday"),
        ({"validation_fraction": 0.6, "test_fraction": 0.6}, "fraction"),
    ):
        assert words in refusal(lambda options=options: prepared(Held(numbers(), **options))), options
