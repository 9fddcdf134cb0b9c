"""Laws of series of the hub: a local copy stands in for it, and what is read is what the same file would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.sources.hub_series import HubSeries
from seqtrain.data.sources.series import TableSeries
from seqtrain.errors import UserError
from tests.support.series import csv, hours, prepared, table

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", datasets.config.HF_HUB_OFFLINE)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


def columns() -> dict[str, list[Any]]:
    """What `csv` writes, as columns."""
    values: list[float | None] = [n % 7 + 0.5 for n in range(60)]
    values[40] = None
    return {"date": hours(60), "a": values, "b": [-n for n in range(60)]}


def folder_of(kind: str, folder: Path, content: dict[str, list[Any]]) -> str:
    """A data set in one of the hub's own forms."""
    data = datasets.Dataset.from_dict(content)
    path = folder / kind
    path.mkdir()
    if kind == "csv":
        data.to_csv(str(path / "train.csv"), index=False)
    elif kind == "parquet":
        data.to_parquet(str(path / "train-00000-of-00001.parquet"))
    else:
        datasets.DatasetDict({"train": data}).save_to_disk(str(path))
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "saved"])
@pytest.mark.parametrize("options", [{}, {"columns": ["a"], "known_columns": ["b"], "rows": [40, 10, 10]}])
def test_a_data_set_gives_the_series_that_its_file_would_give(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    source = HubSeries(path=folder_of(kind, tmp_path, columns()), **options)
    source.check()
    as_file = table(tmp_path, csv().replace(f"{hours(60)[40]},5.5", f"{hours(60)[40]},"), **options)
    (made, rows), (expected, expected_rows) = prepared(source), prepared(as_file)
    assert made.hashes == expected.hashes
    for split, part in rows.items():
        assert part.hash == expected_rows[split].hash
    assert np.isnan(source.series.values[40, 0])
    described = source.describe()
    assert (described["source"], described["read_split"]) == ("hub_series", "train")
    assert described["columns"] == list(source.series.columns)


def test_files_that_are_read_in_another_order_than_their_numbers_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train-2.csv", "train-10.csv"):
        (folder / name).write_text("a\n" + "1\n2\n3\n" * 20)
    with pytest.raises(UserError, match=r"train-10\.csv is read before train-2\.csv"):
        HubSeries(path=str(folder)).check()
    (folder / "train-2.csv").rename(folder / "train-02.csv")
    HubSeries(path=str(folder)).check()


def test_many_series_are_told_apart_by_a_column_and_another_split_by_its_name(tmp_path: Path) -> None:
    content = {"station": ["x"] * 30 + ["y"] * 30, "date": hours(30) * 2, "a": [float(n * n) for n in range(60)]}
    data = datasets.Dataset.from_dict(content)
    path = str(tmp_path / "saved")
    datasets.DatasetDict({"train": data.select([0]), "all": data}).save_to_disk(path)
    source = HubSeries(path=path, read_split="all", id_column="station")
    assert source.series.names == ("x", "y")
    assert source.series.offsets.tolist() == [0, 30, 60]


def test_a_data_set_that_changes_is_read_anew(tmp_path: Path) -> None:
    one = HubSeries(path=folder_of("csv", tmp_path, columns())).series.values
    again = {**columns(), "b": [n % 7 for n in range(60)]}
    datasets.Dataset.from_dict(again).to_csv(str(tmp_path / "csv" / "train.csv"), index=False)
    other = HubSeries(path=str(tmp_path / "csv")).series.values
    assert one[5, 1] == -5
    assert other[5, 1] == 5


FAULTS: dict[str, tuple[dict[str, list[Any]], dict[str, Any], str]] = {
    "no such column": ({}, {"columns": ["c"]}, "data.columns=c: {path} has no such column"),
    "text": ({"b": ["x"] * 60}, {}, "data.path={path}: column b holds string, and no numbers"),
    "lists": ({"b": [[1.0, 2.0]] * 60}, {}, "data.path={path}: column b holds "),
    "unsorted": ({"date": hours(60)[::-1]}, {}, "data.path={path}: row 2 is earlier than the row before it"),
    "no such split": ({}, {"read_split": "test"}, "data.read_split=test: {path} has train"),
    "gap": (
        {"b": [None, *range(59)]},
        {"known_columns": ["b"]},
        "data.path={path}: row 1 misses a value of data.known",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_one_line_that_names_the_data_set_and_no_file_of_the_cache(fault: str, tmp_path: Path) -> None:
    changed, options, said = FAULTS[fault]
    path = folder_of("parquet", tmp_path, {**columns(), **changed})
    with pytest.raises(UserError) as caught:
        HubSeries(path=path, **options).check()
    (line,) = caught.value.lines
    assert line.startswith(said.format(path=path))
    assert "cache" not in line


def test_a_file_and_a_hub_out_of_reach_are_one_line(tmp_path: Path) -> None:
    file = table(tmp_path, csv()).path
    with pytest.raises(UserError, match=r"is a file; use data=series data\.path="):
        HubSeries(path=str(file))
    with pytest.raises(UserError, match="the hub cannot be reached") as caught:
        HubSeries(path="owner/weather").check()
    assert len(caught.value.lines) == 1
    assert isinstance(HubSeries(path="owner/weather"), TableSeries)
