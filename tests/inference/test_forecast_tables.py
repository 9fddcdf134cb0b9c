"""Laws of forecasts in Python: tables of memory and files of any kind are continued alike, by what the command uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import seqtrain
from seqtrain.cli import main
from seqtrain.errors import UserError
from seqtrain.inference.trained import Trained
from tests.support.series import hours

TRAIN = ("task=forecast", "model=gru", "model.dim=8", "trainer.max_steps=2", "trainer.validate_every=2", "logger=none")
OPTIONS = ("data.max_length=24", "task.horizon=3", "callbacks=none", "task.distribution=gaussian")


def columns(rows: int, *, ahead: int = 0) -> dict[str, Any]:
    """A load, and its price, which is known so many rows ahead."""
    count = np.arange(rows + ahead)
    load = [*(100 + np.sin(count[:rows] / 4)).tolist(), *[None] * ahead]
    return {"date": hours(rows + ahead), "load": load, "price": np.cos(count).tolist()}


def write(path: Path, table: dict[str, Any]) -> Path:
    lines = [",".join(table)]
    for row in zip(*table.values(), strict=True):
        lines.append(",".join("" if cell is None else str(cell) for cell in row))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run that forecasts two columns."""
    folder = tmp_path_factory.mktemp("tables")
    path = write(folder / "train.csv", columns(300))
    assert main.main(["train", *TRAIN, *OPTIONS, "data=series", f"data.path={path}", f"run_dir={folder / 'run'}"]) == 0
    return seqtrain.load(folder / "run")


def test_a_table_is_continued_as_its_file_is_by_the_command(
    run: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns(40)
    path = write(tmp_path / "more.csv", table)
    assert main.main(["predict", str(run.directory), "--input", str(path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = {name: [row[name] for row in rows] for name in rows[0]}
    assert expected["time"] == ["2024-01-02 16:00:00", "2024-01-02 17:00:00", "2024-01-02 18:00:00"]
    dated = {**table, "date": np.array(table["date"], dtype="datetime64[ns]")}
    for given in (path, str(path), table, dated, pa.table(dated)):
        assert run.forecast(given) == expected
    assert {"load", "load_lower_80", "load_upper_80", "price_upper_95"} <= expected.keys()


def test_a_table_of_pandas_is_continued_with_its_times_as_a_column_or_a_named_index(run: Trained) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(columns(40))
    table["date"] = pandas.to_datetime(table["date"])
    expected = run.forecast(columns(40))
    assert run.forecast(table) == expected
    assert run.forecast(table.set_index("date")) == expected
    # Without a name the times would be lost, and rows counted in their place.
    with pytest.raises(UserError, match="date: the table has no such column"):
        run.forecast(table.set_index("date").rename_axis(None))


def test_what_cannot_be_continued_is_said_in_one_line_that_names_the_table(run: Trained) -> None:
    refused: list[tuple[Any, str]] = [
        (columns(10), "the series has 10 rows of values, but the model reads data.max_length=24"),
        (columns(1), "the series has 1 row of values"),
        ({"date": hours(40), "load": [1.0] * 40}, "the table has no such column"),
        ({"load": [1.0], "price": [1.0, 2.0]}, "expected a path, a dict of columns"),
        ([{"load": 1.0}], "expected a path, a dict of columns, or a table of pandas or pyarrow, not a list"),
        ({**columns(40), "date": hours(40)[::-1]}, "the table: row 2 is earlier than the row before it"),
        (Path("none.csv"), "none.csv: "),
    ]
    for given, words in refused:
        with pytest.raises(UserError) as caught:
            run.forecast(given)
        assert words in str(caught.value)
        assert "table.parquet" not in str(caught.value)
        assert "data.path" not in str(caught.value)


def test_rows_without_values_at_the_end_are_said_to_be_the_time_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "train.csv", columns(300))
    known = ("data=series", f"data.path={path}", "data.known_columns=[price]", f"run_dir={tmp_path / 'run'}")
    assert main.main(["train", *TRAIN, *OPTIONS, *known]) == 0
    capsys.readouterr()
    run = seqtrain.load(tmp_path / "run")
    found = run.forecast(columns(40, ahead=5))
    assert "5 rows without values at the end are the time ahead; the forecast has 3 steps" in capsys.readouterr().err
    assert found["time"][0] == "2024-01-02 16:00:00"
    more = write(tmp_path / "more.csv", columns(40, ahead=1))
    assert main.main(["predict", str(run.directory), "--input", str(more)]) == 0
    assert "1 row without values at the end is the time ahead" in capsys.readouterr().err
