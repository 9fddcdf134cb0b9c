"""Laws of the ETT presets: the published cut, and the figure of a linear autoregression on it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtrain.data.sources.series import SeriesFile
from seqtrain.tasks.forecast import Forecast
from tests.support.series import prepared

ETTH1 = Path(__file__).parents[2].parent / "shared" / "data" / "ett" / "ETTh1.csv"
REAL = pytest.mark.skipif(not ETTH1.is_file(), reason=f"{ETTH1} is not there: it may not be shipped")
MONTH = 30 * 24  # hours


def preset(name: str, path: Path) -> SeriesFile:
    """The source that a file of conf/data says, with its own options alone."""
    content: dict[str, Any] = yaml.safe_load((files("seqtrain.conf") / "data" / f"{name}.yaml").read_text())
    del content["defaults"]
    return SeriesFile(**{**content, "path": str(path)})


@pytest.mark.parametrize(("name", "rows_an_hour"), [("etth1", 1), ("ettm1", 4)])
def test_splits_are_of_12_4_and_4_months_and_a_season_is_a_day(name: str, rows_an_hour: int, tmp_path: Path) -> None:
    source = preset(name, tmp_path / "absent.csv")
    month = MONTH * rows_an_hour
    assert source.rows == [12 * month, 4 * month, 4 * month]
    assert source.season == 24 * rows_an_hour


@pytest.mark.long
@REAL
def test_least_squares_of_336_values_has_the_known_figure_on_etth1_96_hours_ahead() -> None:
    preprocessor, rows = prepared(preset("etth1", ETTH1))
    # Each of 7 columns by itself.
    sizes = {split: part.size["rows"] for split, part in rows.items()}
    assert sizes == {"train": 7 * 8640, "validation": 7 * 2880, "test": 7 * 2880}
    options: dict[str, Any] = {"distribution": "point", "relative": True, "patch": 1, "dim": 1}
    task = Forecast(horizon=96, max_length=336, preprocessor=preprocessor, **options)
    found = task.baselines(rows["train"], rows["test"], preprocessor, lambda line: None)
    assert found["ar"]["mse"] == pytest.approx(0.370, abs=0.002)
    assert found["ar"]["mae"] == pytest.approx(0.392, abs=0.002)
    assert found["last_value"]["mse"] == pytest.approx(1.294, abs=0.002)
