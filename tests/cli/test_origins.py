"""Laws of rolling origins: all origins of a split are what evaluate measures, and none reads beyond its own row."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from seqtrain.distributed.ranks import say
from seqtrain.experiment.conformal import _quantile
from seqtrain.experiment.rolling_origins import MODEL, roll
from seqtrain.tasks.forecast import Forecast
from tests.conftest import Seqtrain
from tests.journeys.walk import SMALL, Walk, assert_near

ORIGINS = 13  # of 24 rows of test, with a horizon of 12
WINDOWS = (
    *SMALL,
    *("task=forecast", "data.size=2", "data.length=240", "data.test_fraction=0.1", "data.max_length=16"),
    *("data.batch_size=8", "task.horizon=12", "model=gru"),
)


@pytest.fixture(scope="module")
def walk(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return Walk(seqtrain, tmp_path_factory.mktemp("rolled"))


@pytest.mark.parametrize("strategy", ["direct", "recursive"])
def test_all_origins_are_the_split_as_evaluate_measures_it(strategy: str, walk: Walk) -> None:
    name = f"run-{strategy}"
    walk.train(name, *WINDOWS, f"task.strategy={strategy}")
    (expected,) = walk.json("evaluate", name, "--split", "test", "--baselines")
    rows = walk.json("evaluate", name, "--split", "test", "--origins", str(ORIGINS))
    assert [row["origin"] for row in rows][-1] == "all"
    assert len(rows) == ORIGINS + 1
    whole = rows[-1]
    assert_near(whole["metrics"], {key: expected["metrics"][key] for key in whole["metrics"]}, 1e-5)
    assert whole["baselines"].keys() == expected["baselines"].keys()
    for baseline, metrics in whole["baselines"].items():
        assert_near(metrics, expected["baselines"][baseline])
    assert np.mean([row["metrics"]["mse"] for row in rows[:-1]]) == pytest.approx(whole["metrics"]["mse"])
    last = walk.json("evaluate", name, "--split", "test", "--origins", "1")
    assert last[0]["metrics"] == last[1]["metrics"] == rows[-2]["metrics"]
    assert last[1]["test_set"] == "last 1 origins"


def test_a_model_that_carries_state_reads_all_history_before_an_origin(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = walk.train("carried", *WINDOWS, "tbptt=carry", "tbptt.k2=16", "tbptt.reset=document")
    read: list[int] = []
    ahead = Forecast.ahead

    def spy(task: Forecast, model: Any, features: Any, k2: int) -> Any:
        read.append(len(features))
        return ahead(task, model, features, k2)

    monkeypatch.setattr(Forecast, "ahead", spy)
    found = roll(str(run), "test", "last", 2, say)
    assert read == [228, 228, 229, 229], "the rows before each origin of both series, and its own without its value"
    assert found.whole.keys() >= {MODEL, "last_value", "ar"}


# -- conformal intervals ----------------------------------------------------------------------------------------------


COVERED = (
    *SMALL,
    *("task=forecast", "data.size=4", "data.length=300", "data.test_fraction=0.2", "data.max_length=16"),
    *("data.batch_size=8", "task.horizon=3", "model=gru"),
)


def test_a_width_is_the_error_whose_rank_among_n_and_one_more_is_the_share() -> None:
    errors = np.arange(1.0, 20.0)[::-1, None, None]
    assert _quantile(errors, 0.8) == [[16]]  # ceil(20 * 0.8)
    assert _quantile(errors, 0.95) == [[19]]
    assert _quantile(errors[1:], 0.95) is None, "of 18 errors none is as rare as one in twenty"
    errors[3] = np.nan
    assert _quantile(errors, 0.5) == [[10]], "one that is missing is none"


def test_errors_that_are_alike_are_covered_as_promised() -> None:
    draws = np.abs(np.random.default_rng(1).standard_normal((2, 4000, 50, 1)))
    width = _quantile(draws[0, :99], 0.8)
    assert width is not None
    assert np.mean(draws[1] <= width) == pytest.approx(0.8, abs=0.02)


def test_intervals_are_made_from_validation_and_measured_on_test(walk: Walk) -> None:
    walk.train("run", *COVERED)
    (found,) = walk.json("evaluate", "run", "--split", "test", "--intervals")
    widths = [found["intervals"][share] for share in ("50", "80", "95")]
    assert sorted(each["width"] for each in widths) == [each["width"] for each in widths]
    for share, each in zip((0.5, 0.8, 0.95), widths, strict=True):
        assert each["coverage"] == pytest.approx(share, abs=0.15)
        assert len(each["by_step"]) == 3
    rows = [f"2025-01-{1 + n // 24:02} {n % 24:02}:00:00,{n % 24}" for n in range(40)]
    (walk.folder / "more.csv").write_text("\n".join(["time,value", *rows]))
    plain, wide = (
        list(csv.DictReader(io.StringIO(walk.type("predict", "run", "--input", "more.csv", *words))))
        for words in ((), ("--intervals",))
    )
    for one, other in zip(plain, wide, strict=True):
        assert one.items() <= other.items()
        middle = (float(other["value_lower_80"]) + float(other["value_upper_80"])) / 2
        assert middle == pytest.approx(float(one["value"]), rel=1e-5)
