"""Laws of continued series: units, times and intervals of what comes after a file."""

from __future__ import annotations

import copy
import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.cli import main
from seqtrain.data.preprocess import Rows
from seqtrain.data.sources.series import SeriesFile
from seqtrain.data.values.series import Clock, Series, SeriesSplit, months_of_a_step
from seqtrain.errors import NonFinite
from seqtrain.inference.forecasts import (
    Continued,
    _times_ahead,
    _with_rows_ahead,
    continue_file,
)
from seqtrain.inference.opened import Opened, open_run
from tests.support.series import hours

HOURS = 400
DAYS = Clock(None, "%Y-%m-%d")
OFFSET, SPREAD = 1000.0, 50.0
TRAIN = ("task=forecast", "model=gru", "model.dim=8", "trainer.max_steps=3", "trainer.validate_every=3", "logger=none")
WINDOWS = ("data.max_length=24", "task.horizon=3", "callbacks=none")


def continued_file(opened: Opened, path: Path) -> list[Continued]:
    return continue_file(opened, path, called=f"--input {path}", say=pytest.fail)


def wave(time: np.ndarray) -> np.ndarray:
    return OFFSET + SPREAD * np.sin(2 * np.pi * time / 24)


def write(path: Path, values: np.ndarray, *, extra: str = "") -> Path:
    """A table of hourly values of one column."""
    rows = zip(hours(len(values)), values, strict=True)
    path.write_text("date,value\n" + "".join(f"{when},{value}\n" for when, value in rows) + extra)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Opened]:
    """Runs that read windows, by either strategy, and one that reads a stream."""
    folder = tmp_path_factory.mktemp("forecasts")
    data = ("data=series", f"data.path={write(folder / 'wave.csv', wave(np.arange(HOURS)))}")
    kinds = {
        "windows": ("task.distribution=gaussian",),
        "recursive": ("task.strategy=recursive", "data.time_features=[hour,weekday]"),
        "encoder_decoder": ("task.strategy=recursive", "model=encoder_decoder"),
        "stream": ("tbptt=carry", "tbptt.k2=8", "task.distribution=quantiles", "data.batch_size=2"),
    }
    for name, options in kinds.items():
        words = [*TRAIN, *data, *WINDOWS, *options, f"run_dir={folder / name}"]
        assert main.main(["train", *words]) == 0
    return {name: open_run(folder / name) for name in kinds}


def test_a_forecast_is_in_the_units_of_the_data_and_goes_on_from_its_last_row(
    runs: dict[str, Opened], tmp_path: Path
) -> None:
    path = write(tmp_path / "more.csv", wave(np.arange(50)))
    for name, run in runs.items():
        (found,) = continued_file(run, path)
        assert found.times == ["2024-01-03 02:00:00", "2024-01-03 03:00:00", "2024-01-03 04:00:00"]
        ahead = found.values["forecast"]
        assert ahead.shape == (3, 1)
        # Nearly untrained, and relative to the last value: near it in the unit of the data, far from it in scaled ones.
        assert np.abs(ahead - wave(np.array([49]))).max() < 3 * SPREAD, name
        # A value that was forecast is read back in as if it were certain: so no interval is told.
        assert (len(found.values) == 1) == (run.config.task.strategy == "recursive")
        for share in () if len(found.values) == 1 else (50, 80):
            assert (found.values[f"lower_{share}"] < ahead).all(), name
            assert (ahead < found.values[f"upper_{share}"]).all(), name


def test_adding_a_constant_to_a_series_that_was_scaled_by_it_adds_it_to_the_forecast(
    runs: dict[str, Opened], tmp_path: Path
) -> None:
    opened = runs["windows"]
    scaling = opened.preprocessor.series
    assert scaling is not None
    (plain,) = continued_file(opened, write(tmp_path / "a.csv", wave(np.arange(50))))
    moved_scaling = replace(scaling, mean=(scaling.mean[0] + 7.0,))
    moved_run = replace(opened, preprocessor=replace(opened.preprocessor, series=moved_scaling))
    (moved,) = continued_file(moved_run, write(tmp_path / "b.csv", wave(np.arange(50)) + 7.0))
    np.testing.assert_allclose(moved.values["forecast"], plain.values["forecast"] + 7.0, rtol=1e-6)


def test_a_window_knows_nothing_of_what_stands_before_it_and_a_stream_does(
    runs: dict[str, Opened], tmp_path: Path
) -> None:
    values = wave(np.arange(60))
    other = values.copy()
    other[:36] += 300.0
    for name, is_same in (("windows", True), ("stream", False)):
        (one,) = continued_file(runs[name], write(tmp_path / "one.csv", values))
        (two,) = continued_file(runs[name], write(tmp_path / "two.csv", other))
        assert np.array_equal(one.values["forecast"], two.values["forecast"]) == is_same, name


def test_a_stream_is_read_in_chunks_that_equal_the_whole(runs: dict[str, Opened], tmp_path: Path) -> None:
    opened: Any = runs["stream"]
    path = write(tmp_path / "long.csv", wave(np.arange(100)))
    found = {}
    for k2 in (8, 100):
        opened.config.tbptt.k2 = opened.config.tbptt.k1 = k2
        found[k2] = continued_file(opened, path)[0].values["forecast"]
    opened.config.tbptt.k2 = opened.config.tbptt.k1 = 8
    np.testing.assert_allclose(found[8], found[100], rtol=1e-6)


@pytest.mark.parametrize("name", ["recursive", "encoder_decoder"])
def test_a_recursive_continuation_is_what_evaluation_forecasts_of_the_same_window(
    name: str, runs: dict[str, Opened], tmp_path: Path
) -> None:
    opened: Any = runs[name]
    values, origin = wave(np.arange(60)), 40
    whole = SeriesFile(path=str(write(tmp_path / "whole.csv", values))).series
    split = SeriesSplit(whole, np.array([origin]), np.array([60]))
    task, preprocessor = opened.task, opened.preprocessor
    windows = task.examples(Rows({}, None, lambda: iter(()), series=split), preprocessor, max_length=24, seed=0)
    batch = windows.collate(np.array([0]), 0, windows.totals(np.array([0]), 0))
    with torch.no_grad():
        expected = task.params(opened.model, batch, None)[0][0, 0, ..., 0].double().numpy()
    (found,) = continued_file(opened, write(tmp_path / "before.csv", values[:origin]))
    scaling = preprocessor.series
    np.testing.assert_allclose(
        found.values["forecast"], expected * scaling.std[0] + scaling.mean[0], rtol=1e-6, atol=1e-4
    )


def with_prices(path: Path, values: np.ndarray, prices: np.ndarray) -> Path:
    """A table of hourly values with a price that goes on behind the last of them."""
    cells = [*map(str, values), *[""] * len(prices)]
    rows = zip(hours(len(prices)), cells, prices, strict=False)
    path.write_text("date,value,price\n" + "".join(f"{when},{value},{price}\n" for when, value, price in rows))
    return path


def test_each_step_ahead_reads_what_is_known_ahead_of_it_and_a_file_without_it_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, prices = wave(np.arange(300)), np.cos(np.arange(303) / 5)
    file = with_prices(tmp_path / "train.csv", values, prices[:300])
    words = [*TRAIN, "data=series", f"data.path={file}", "data.known_columns=[price]", *WINDOWS]
    run = tmp_path / "run"
    assert main.main(["train", *words, "task.strategy=recursive", f"run_dir={run}"]) == 0
    opened = open_run(run)
    said: list[str] = []
    (plain,) = continue_file(opened, with_prices(tmp_path / "a.csv", values, prices), called="", say=said.append)
    for step in range(3):
        other = prices.copy()
        other[300 + step] += 2.0
        (moved,) = continue_file(opened, with_prices(tmp_path / "b.csv", values, other), called="", say=said.append)
        changed = (moved.values["forecast"] != plain.values["forecast"])[:, 0]
        assert changed.tolist() == [ahead >= step for ahead in range(3)]
    capsys.readouterr()
    short = {300: "ends with its last value", 302: "has 2 rows"}
    for count, reason in short.items():
        path = with_prices(tmp_path / "short.csv", values, prices[:count])
        assert main.main(["predict", str(run), "--input", str(path)]) == 2
        line = f"price: known ahead, but the file {reason}; add the 3 rows of task.horizon for the time ahead"
        error = capsys.readouterr().err
        assert line in error
        assert error.count("\n") == 1


def seconds(*dates: str) -> np.ndarray:
    return np.array([int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()) for date in dates])


def test_months_quarters_and_years_go_on_by_the_calendar() -> None:
    going_on = {
        ("2023-12-31", "2024-01-31", "2024-02-29"): ["2024-03-31", "2024-04-30"],
        ("2023-11-28", "2023-12-28", "2024-01-28", "2024-02-28"): ["2024-03-28", "2024-04-28"],
        ("2022-12-30", "2023-01-30", "2023-02-28"): ["2023-03-30", "2023-04-30"],
        ("2023-03-31", "2023-06-30", "2023-09-30"): ["2023-12-31", "2024-03-31"],
        ("2020-01-01", "2021-01-01", "2022-01-01"): ["2023-01-01", "2024-01-01"],
    }
    for history, ahead in going_on.items():
        times = seconds(*history)
        count = len(times)
        values, offsets = np.arange(float(count))[:, None], np.array([0, count])
        series = Series(values, np.zeros((count, 0)), times, offsets, ("",), ("value",), clock=DAYS)
        one, origin = _with_rows_ahead(series, 0, 2)
        assert one.times is not None
        assert [DAYS.text(time) for time in one.times[origin:].tolist()] == ahead, "what is read"
        assert [DAYS.text(time) for time in _times_ahead(one, origin, 2)] == ahead, "what is written"
    assert months_of_a_step(seconds("2024-01-01", "2024-01-29", "2024-02-26", "2024-03-25")) is None, "four weeks"


def test_a_file_that_cannot_be_continued_is_one_line(
    runs: dict[str, Opened], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(runs["windows"].run.path)
    good = write(tmp_path / "good.csv", wave(np.arange(50)))
    short = write(tmp_path / "short.csv", wave(np.arange(10)))
    text = write(tmp_path / "text.csv", wave(np.arange(50)), extra="2024-02-01 00:00:00,oops\n")
    other = tmp_path / "other.csv"
    other.write_text(good.read_text().replace("value", "price"))
    changed = {
        "steps": "date,value\n" + "".join(f"{n},{n % 7}\n" for n in range(50)),
        "zone": good.read_text().replace(":00:00", ":00:00+01:00"),
        "daily": "date,value\n" + "".join(f"2024-{1 + n // 28:02d}-{1 + n % 28:02d},{n % 7}\n" for n in range(28)),
        "minutes": "date,value\n" + "".join(f"2024-01-01 00:{n:02d},{n % 7}\n" for n in range(50)),
        "empty": "".join(line if n < 20 else line.partition(",")[0] + ",\n" for n, line in enumerate(good.open())),
        "commas": good.read_text().replace(",", ";").replace(".", ","),
        "no time": "".join(line.partition(",")[2] for line in good.open()),
    }
    for name, content in changed.items():
        (tmp_path / f"{name}.csv").write_text(content)
    wanted = {
        ("--input", str(short)): "the series has 10 rows of values, but the model reads data.max_length=24; add more",
        ("--input", str(text)): f"error: --input {text}: ",
        ("--input", str(other)): "has no such column",
        ("--input", str(tmp_path / "none.csv")): f"error: {tmp_path / 'none.csv'}: No such file",
        ("--input", str(tmp_path / "steps.csv")): "has whole numbers as times, but the run was trained on dates; write",
        ("--input", str(tmp_path / "zone.csv")): "has dates with a time zone, but the run was trained on dates; write",
        ("--input", str(tmp_path / "daily.csv")): "are 86,400 s apart, but the run was trained on rows 3,600 s apart",
        ("--input", str(tmp_path / "minutes.csv")): "are 60 s apart, but the run was trained on rows 3,600 s apart",
        ("--input", str(tmp_path / "empty.csv")): "has no value in the rows that the model reads",
        ("--input", str(tmp_path / "no time.csv")): "date: ",
        ("--input", str(tmp_path / "commas.csv")): "for decimal commas write points, as in training",
        ("some text",): "continues series, not texts; give --input FILE.csv",
        ("--input", str(good), "--score"): "--score: task=forecast does not take it",
        ("--input", str(good), "--plot", str(tmp_path / "fan.gif")): "expected a name that ends in .png or .svg",
    }
    for words, line in wanted.items():
        assert main.main(["predict", run, *words]) == 2, words
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert line in error


def test_rows_that_windows_read_before_their_split_are_held_against_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "wave.csv", wave(np.arange(HOURS)))
    words = [*TRAIN, "data=series", f"data.path={path}", *WINDOWS, f"run_dir={tmp_path / 'run'}"]
    assert main.main(["train", *words]) == 0
    values = wave(np.arange(HOURS))
    for split, row in (("validation", 239), ("test", 300)):
        assert main.main(["evaluate", str(tmp_path / "run"), "--split", split]) == 0
        capsys.readouterr()
        write(path, np.where(np.arange(HOURS) == row, 0.0, values))
        assert main.main(["evaluate", str(tmp_path / "run"), "--split", split]) == 2
        assert f"--split {split}: the rows before it have changed since" in capsys.readouterr().err
        write(path, values)


def test_a_table_of_a_zone_is_answered_in_it_and_drawn_by_its_dates(runs: dict[str, Opened], tmp_path: Path) -> None:
    zoned = tmp_path / "zoned.csv"
    zoned.write_text(write(zoned, wave(np.arange(HOURS))).read_text().replace(":00:00", ":00+02:00"))
    words = [*TRAIN, "data=series", f"data.path={zoned}", *WINDOWS, f"run_dir={tmp_path / 'run'}"]
    assert main.main(["train", *words]) == 0
    (found,) = continued_file(open_run(tmp_path / "run"), zoned)
    assert found.times[:2] == ["2024-01-17 16:00+02:00", "2024-01-17 17:00+02:00"]
    fan = found.fan(0)
    assert [str(fan.history_times[-1]), str(fan.times[0])] == ["2024-01-17T15:00:00", "2024-01-17T16:00:00"]


def test_the_table_and_the_lines_of_json_say_the_same(
    runs: dict[str, Opened], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = str(runs["windows"].run.path), write(tmp_path / "more.csv", wave(np.arange(50)))
    out, picture = tmp_path / "out.csv", tmp_path / "fan.svg"
    assert main.main(["predict", run, "--input", str(path), "--output", str(out), "--plot", str(picture)]) == 0
    assert capsys.readouterr().out == ""
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert main.main(["predict", run, "--input", str(path), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(lines) == 3
    for row, line in zip(rows, lines, strict=True):
        assert row["time"] == line["time"]
        assert float(row["value"]) == pytest.approx(line["value"], rel=1e-7)
        assert line["value_lower_80"] < line["value"] < line["value_upper_80"]
    assert picture.read_text().startswith("<?xml")


def test_a_forecast_that_is_no_number_is_no_answer(runs: dict[str, Opened], tmp_path: Path) -> None:
    opened = runs["windows"]
    broken = replace(opened, task=copy.deepcopy(opened.task))
    torch.nn.init.constant_(broken.task.head.bias, torch.nan)  # type: ignore[arg-type]
    with pytest.raises(NonFinite, match="the forecast contains nan or inf"):
        continued_file(broken, write(tmp_path / "more.csv", wave(np.arange(50))))
