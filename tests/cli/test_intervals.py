"""Laws of conformal intervals: the rank that the theory names, coverage where errors are alike, and one of predict."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from seqtrain.experiment.conformal import _quantile
from tests.conftest import Seqtrain
from tests.journeys.walk import SMALL, Walk

WINDOWS = (
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


def test_intervals_are_made_from_validation_and_measured_on_test(
    seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory
) -> None:
    walk = Walk(seqtrain, tmp_path_factory.mktemp("intervals"))
    walk.train_killed("run", *WINDOWS)
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
    _refused(walk, "evaluate", "run", "--intervals", says="error: --intervals: they are made from validation")
    walk.train("sure", *WINDOWS, "task.distribution=gaussian")
    words = ("evaluate", "sure", "--split", "test", "--intervals")
    _refused(walk, *words, says="error: --intervals: task.distribution=gaussian has its own; leave it out")


def _refused(walk: Walk, *words: str, says: str) -> Any:
    answer = walk.seqtrain(*words, cwd=walk.folder)
    assert answer.rc == 2
    assert answer.err.strip().splitlines()[-1].startswith(says)
