"""Laws of hub data: a local copy stands in for the hub, and every fault is one line within seconds."""

from __future__ import annotations

import http.server
import shutil
import threading
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from seqtrain.data.sources import hub, hub_files
from seqtrain.data.sources.hub import Hub
from seqtrain.data.sources.hub_series import HubSeries
from tests.support.refused import refusal
from tests.support.series import csv, hours, prepared, table

datasets = pytest.importorskip("datasets")

ROWS = {"train": ["", " = Title = \n", "", "text 1", "text 2\n"], "validation": ["v 1\n", "v 2"], "test": ["t"]}
ALONE: dict[str, Any] = {"validation_split": None, "test_split": None}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "saved"
    splits = {s: datasets.Dataset.from_dict({"text": rows, "n": range(len(rows))}) for s, rows in ROWS.items()}
    datasets.DatasetDict(splits).save_to_disk(str(path))
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    datasets.disable_progress_bars()
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", datasets.config.HF_HUB_OFFLINE)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def all_of(source: Hub) -> dict[str, list[str]]:
    source.check()
    return {split: list(source.documents(split)) for split in ("train", "validation", "test")}


def layout(folder: Path, splits: dict[str, dict[str, list]], features: dict | None = None) -> str:
    """A folder in the hub's layout: parquet files that know their features."""
    folder.mkdir()
    kinds = None if features is None else datasets.Features(features)
    for split, columns in splits.items():
        data = datasets.Dataset.from_dict(columns, features=kinds)
        data.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return str(folder)


def test_a_saved_copy_gives_its_rows_and_a_split_as_one_document_has_one_line_end_a_row(saved):
    assert all_of(Hub(path=str(saved))) == ROWS
    found = all_of(Hub(path=str(saved), document="split"))
    assert found["train"] == ["\n = Title = \n\ntext 1\ntext 2\n"]
    assert found["validation"] == ["v 1\nv 2\n"]


def test_a_split_that_is_not_named_is_cut_off_from_train_and_one_saved_split_is_train(saved):
    for path in (saved, saved / "train"):
        source = Hub(path=str(path), **ALONE, validation_fraction=0.2)
        source.check()
        assert sorted([*source.documents("train"), *source.documents("validation")]) == sorted(ROWS["train"])
        assert (len(list(source.documents("validation"))), source.has("test")) == (1, False)


def test_a_missing_test_split_is_a_fault_only_when_asked_for(saved):
    source = Hub(path=str(saved), test_split="tests")
    source.check()
    said = refusal(lambda: list(source.documents("test")))
    assert said.startswith("data.test_split=tests: ")
    assert "has train, validation, test" in said


def test_the_hub_is_not_waited_for_and_not_tried_where_the_environment_is_offline(monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *args, **kwargs: threading.Event().wait())
    monkeypatch.setattr(hub_files, "PATIENCE", 0.1)
    said = refusal(Hub(path="nobody/nothing").check)
    assert "cannot be reached" in said
    assert "local folder or a save_to_disk copy" in said
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "reachable", lambda url: pytest.fail("tried the hub"))
    assert "HF_HUB_OFFLINE is set" in refusal(Hub(path="nobody/nothing").check)


def test_out_of_reach_the_cached_copy_is_used_but_not_for_another_revision(tmp_path):
    folder = layout(tmp_path / "thing", {split: {"text": rows} for split, rows in ROWS.items()})
    assert all_of(Hub(path=folder)) == ROWS
    assert Hub(path=folder).describe()["version"]
    shutil.move(tmp_path / "datasets" / "thing", tmp_path / "datasets" / "nobody___thing")
    assert all_of(Hub(path="nobody/thing")) == ROWS
    said = refusal(Hub(path="nobody/thing", revision="abc").check)
    assert said.startswith("data.revision=abc: the hub cannot be reached")


def test_an_address_that_answers_is_reachable_and_one_that_does_not_is_not():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # answers 501
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    assert hub.reachable(f"http://127.0.0.1:{server.server_port}")
    thread.join()
    server.server_close()
    assert not hub.reachable("http://127.0.0.1:9")


LABELLED = {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["negative", "positive"])}


def test_class_labels_become_their_names(tmp_path):
    columns = {"sentence": [f"s {i}" for i in range(10)], "label": [i % 2 for i in range(10)]}
    path = layout(tmp_path / "layout", {"train": columns, "validation": {"sentence": [""], "label": [1]}}, LABELLED)
    datasets.load_dataset(path).save_to_disk(str(tmp_path / "copy"))
    for folder in (path, str(tmp_path / "copy")):
        source = Hub(path=folder, column="sentence", label_column="label", test_split=None, test_fraction=0.2)
        source.check()
        assert source.fields == ("text", "label")
        rows = [*source.rows("train"), *source.rows("test")]
        names = ("negative", "positive")
        assert sorted(map(str, rows)) == [str({"text": f"s {i}", "label": names[i % 2]}) for i in range(10)]
        assert len(list(source.rows("test"))) == 2
        assert list(source.rows("validation")) == [{"text": "", "label": "positive"}]
        assert list(source.documents("validation")) == [""]


def test_labels_without_names_are_text_and_a_null_is_none(tmp_path):
    cases = (([3, -1], ["3", "-1"]), ([True, False], ["True", "False"]), (["a", "b"], ["a", "b"]))
    options = {**ALONE, "label_column": "label", "validation_fraction": 0.0}
    for number, (labels, expected) in enumerate(cases):
        path = layout(tmp_path / str(number), {"train": {"text": ["x", "y"], "label": labels}})
        source = Hub(path=path, **options)
        source.check()
        assert [row["label"] for row in source.rows("train")] == expected, labels
    path = layout(tmp_path / "nulls", {"train": {"sentence": ["x", "y", None], "label": [1, None, 1]}}, LABELLED)
    for column, row in (("label", 2), ("sentence", 3)):
        kept = {"column": column} if column == "sentence" else {"column": "sentence", "label_column": "label"}
        said = refusal(lambda given: list(Hub(path=path, **ALONE, **given)._read("train")), kept)
        assert f"train row {row}: {column} is null; remove the row or give it" in said


def test_secret_labels_are_told_with_their_split(tmp_path):
    splits = {"train": [0, 1], "validation": [-1], "test": [-1]}
    columns = {split: {"sentence": ["x"] * len(labels), "label": labels} for split, labels in splits.items()}
    path = layout(tmp_path / "layout", columns, LABELLED)
    source = Hub(path=path, column="sentence", label_column="label")
    assert "validation row 1: label is -1, not a label; use a split with labels" in refusal(source.check)
    assert "test row 1: label is -1" in refusal(lambda: list(source.rows("test")))


def test_dotted_names_reach_into_a_nested_translation(tmp_path):
    text = datasets.Value("string")
    pairs = [{"en": f"one {i}", "fr": f"un {i}"} for i in range(10)]
    for kind, nested in (("Translation", datasets.Translation(["en", "fr"])), ("struct", {"en": text, "fr": text})):
        features = {"id": text, "translation": nested}
        path = layout(tmp_path / kind, {"train": {"id": list("abcdefghij"), "translation": pairs}}, features)
        datasets.load_dataset(path).save_to_disk(str(tmp_path / f"{kind} saved"))
        for folder in (path, str(tmp_path / f"{kind} saved")):
            columns = {"source_column": "translation.fr", "target_column": "translation.en"}
            source = Hub(path=folder, **columns, **ALONE, validation_fraction=0.2)
            source.check()
            assert source.fields == ("source", "target")
            rows = [*source.rows("train"), *source.rows("validation")]
            assert sorted(row["source"] for row in rows) == [pair["fr"] for pair in pairs], folder
            assert all(row["target"] == row["source"].replace("un", "one") for row in rows), folder


PRESETS = {
    "imdb": ("text,label", ["test"]),
    "sst2": ("sentence,label", ["validation"]),
    "ag_news": ("text,label", ["test"]),
    "multi30k": ("en,de", ["validation", "test"]),
    "opus_books": ("translation", []),
}


def test_a_preset_reads_a_folder_like_the_hub_s(tmp_path):
    conf = files("seqtrain.conf") / "data"
    values = {"label": list(range(2)) * 20, "translation": [{"en": str(i), "fr": str(i)} for i in range(40)]}
    for name, (columns, others) in PRESETS.items():
        base, own = (yaml.safe_load((conf / f"{file}.yaml").read_text()) for file in ("hub", name))
        rows = {column: values.get(column, [str(i) for i in range(40)]) for column in columns.split(",")}
        path = layout(tmp_path / name, dict.fromkeys(["train", *others], rows))
        left_out = ("defaults", "_target_", "path", "name")
        kept = {key: value for key, value in {**base, **own}.items() if key not in left_out}
        source = Hub(path=path, **kept)
        source.check()
        assert all(source.has(split) and next(source.rows(split)) for split in ("train", "validation", "test")), name
        assert source.fields == (("text", "label") if "label" in columns else ("source", "target")), name


# -- series ------------------------------------------------------------------------------------------------------------


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
def test_a_data_set_gives_the_series_that_its_file_would_give(kind: str, tmp_path: Path) -> None:
    path = folder_of(kind, tmp_path, columns())
    for options in ({}, {"columns": ["a"], "known_columns": ["b"], "rows": [40, 10, 10]}):
        source = HubSeries(path=path, **options)
        source.check()
        as_file = table(tmp_path, csv().replace(f"{hours(60)[40]},5.5", f"{hours(60)[40]},"), **options)
        (made, rows), (expected, expected_rows) = prepared(source), prepared(as_file)
        assert made.hashes == expected.hashes
        for split, part in rows.items():
            assert part.hash == expected_rows[split].hash
        assert np.isnan(source.series.values[40, 0])


def test_files_that_are_read_in_another_order_than_their_numbers_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train-2.csv", "train-10.csv"):
        (folder / name).write_text("a\n" + "1\n2\n3\n" * 20)
    assert "train-10.csv is read before train-2.csv" in refusal(HubSeries(path=str(folder)).check)
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
    "text": ({"b": ["x"] * 60}, {}, "data.path={path}: column b contains string; expected numbers"),
    "lists": ({"b": [[1.0, 2.0]] * 60}, {}, "data.path={path}: column b contains "),
    "unsorted": ({"date": hours(60)[::-1]}, {}, "data.path={path}: row 2 is earlier than the row before it"),
    "no such split": ({}, {"read_split": "test"}, "data.read_split=test: {path} has train"),
    "gap": (
        {"b": [None, *range(59)]},
        {"known_columns": ["b"]},
        "data.path={path}: row 1 lacks a value of data.known",
    ),
}


def test_each_fault_is_one_line_that_names_the_data_set_and_no_file_of_the_cache(tmp_path: Path) -> None:
    for fault, (changed, options, says) in FAULTS.items():
        (tmp_path / fault).mkdir()
        path = folder_of("parquet", tmp_path / fault, {**columns(), **changed})
        said = refusal(HubSeries(path=path, **options).check)
        assert said.startswith(says.format(path=path)), fault
        assert "cache" not in said, fault
    said = refusal(HubSeries, path=table(tmp_path, csv()).path)
    assert "is a file; use data=series data.path=" in said
    assert "the hub cannot be reached" in refusal(HubSeries(path="owner/weather").check)
