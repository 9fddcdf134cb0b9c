"""Laws of hub data: a local copy stands in for the hub, and every fault is one line within seconds."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from seqtrain.data import hub
from seqtrain.data.hub import Hub
from seqtrain.faults import Fault

datasets = pytest.importorskip("datasets")

ROWS = {"train": ["", " = Title = \n", "", "text 1", "text 2\n"], "validation": ["v 1\n", "v 2"], "test": ["t"]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "saved"
    datasets.disable_progress_bars()
    splits = {s: datasets.Dataset.from_dict({"text": rows, "n": range(len(rows))}) for s, rows in ROWS.items()}
    datasets.DatasetDict(splits).save_to_disk(str(path))
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", datasets.config.HF_HUB_OFFLINE)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def all_of(source: Hub) -> dict[str, list[str]]:
    source.check()
    return {split: list(source.documents(split)) for split in ("train", "validation", "test")}


def test_a_saved_copy_gives_its_rows(saved):
    assert all_of(Hub(path=str(saved))) == ROWS


def test_a_split_as_one_document_has_one_line_end_a_row(saved):
    found = all_of(Hub(path=str(saved), document="split"))
    assert found["train"] == ["\n = Title = \n\ntext 1\ntext 2\n"]
    assert found["validation"] == ["v 1\nv 2\n"]


def test_a_split_that_is_not_named_is_cut_off_from_train(saved):
    source = Hub(path=str(saved), validation_split=None, test_split=None, validation_fraction=0.2)
    source.check()
    assert sorted([*source.documents("train"), *source.documents("validation")]) == sorted(ROWS["train"])
    assert (len(list(source.documents("validation"))), source.has("test")) == (1, False)


def test_one_saved_split_is_train(saved):
    source = Hub(path=str(saved / "train"), validation_split=None, test_split=None)
    source.check()
    assert sorted([*source.documents("train"), *source.documents("validation")]) == sorted(ROWS["train"])


def test_a_folder_in_the_hub_s_layout_gives_its_rows(tmp_path):
    folder = tmp_path / "layout"
    folder.mkdir()
    for split, rows in ROWS.items():
        datasets.Dataset.from_dict({"text": rows}).to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    source = Hub(path=str(folder))
    assert all_of(source) == ROWS
    assert source.describe()["version"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"column": "texts"}, r"data\.column=texts: .* has columns text, n; did you mean text\?"),
        ({"column": "n"}, r"data\.column=n: holds int64, not text"),
        ({"train_split": "training"}, r"data\.train_split=training: .* has train, validation, test$"),
        ({"validation_split": "dev"}, r"data\.validation_split=dev: .* use data\.validation_split=null"),
        ({"document": "split", "validation_split": None}, r"use data\.split_by=position"),
    ],
)
def test_the_preflight_names_the_fault_in_one_line(saved, options, expected):
    with pytest.raises(Fault, match=expected) as caught:
        Hub(path=str(saved), **options).check()
    assert len(caught.value.lines) == 1


def test_a_missing_test_split_is_a_fault_only_when_asked_for(saved):
    source = Hub(path=str(saved), test_split="tests")
    source.check()
    with pytest.raises(Fault, match=r"data\.test_split=tests: .* has train, validation, test"):
        list(source.documents("test"))


def test_paths_that_are_no_data_set_are_refused(saved, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    for path, expected in (("a.txt", "is a file; use data=text"), ("no", "no such folder"), ("empty", "data files")):
        with pytest.raises(Fault, match=expected):
            Hub(path=str(tmp_path / path)).check()


def test_null_text_is_named_with_its_row(tmp_path):
    datasets.Dataset.from_dict({"text": ["x", None]}).save_to_disk(str(tmp_path / "nulls"))
    source = Hub(path=str(tmp_path / "nulls"), validation_split=None, test_split=None, validation_fraction=0.0)
    with pytest.raises(Fault, match="train row 2: text is null"):
        list(source.documents("train"))


def test_a_hub_out_of_reach_is_said_within_seconds():
    begin = time.monotonic()
    with pytest.raises(Fault, match=r"cannot be reached.*local folder or a save_to_disk copy") as caught:
        Hub(path="nobody/nothing").check()
    assert time.monotonic() - begin < hub.PATIENCE + 4
    assert len(caught.value.lines) == 1


def test_offline_by_the_environment_does_not_even_try(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "reachable", lambda url: pytest.fail("tried the hub"))
    with pytest.raises(Fault, match="HF_HUB_OFFLINE is set"):
        Hub(path="nobody/nothing").check()


def test_out_of_reach_the_cached_copy_is_used_but_not_for_another_revision(tmp_path):
    folder = tmp_path / "thing"
    folder.mkdir()
    for split, rows in ROWS.items():
        datasets.Dataset.from_dict({"text": rows}).to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    assert all_of(Hub(path=str(folder))) == ROWS
    shutil.move(tmp_path / "datasets" / "thing", tmp_path / "datasets" / "nobody___thing")
    source = Hub(path="nobody/thing")
    assert all_of(source) == ROWS
    with pytest.raises(Fault, match=r"data\.revision=abc: the hub is out of reach"):
        Hub(path="nobody/thing", revision="abc").check()


def test_an_address_that_answers_is_reachable_and_one_that_does_not_is_not():
    import http.server
    import threading

    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # answers 501
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    assert hub.reachable(f"http://127.0.0.1:{server.server_port}")
    thread.join()
    server.server_close()
    assert not hub.reachable("http://127.0.0.1:9")
