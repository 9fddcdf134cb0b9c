"""Laws of rolling origins: all origins of a split are what evaluate measures, and none reads beyond its own row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqtrain.distributed.ranks import say
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
    walk.train_killed(name, *WINDOWS, f"task.strategy={strategy}")
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


def test_origins_that_are_not_there_are_refused(walk: Walk, seqtrain: Seqtrain) -> None:
    walk.train("short", *WINDOWS)
    for words, says in {
        ("--origins", "14"): "error: --origins 14: the test split has 13 origins with data.max_length=16 rows ",
        ("--origins", "2", "--baselines"): "error: --baselines: has no effect with --origins; leave one of them out",
    }.items():
        answer = seqtrain("evaluate", "short", "--split", "test", *words, cwd=walk.folder)
        assert answer.rc == 2
        assert answer.err.strip().splitlines()[-1].startswith(says)
