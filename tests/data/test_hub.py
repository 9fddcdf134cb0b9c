"""Laws of hub data: a local copy stands in for the hub, and every fault is one line within seconds."""

from __future__ import annotations

import shutil
import threading
import urllib.request
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from seqtrain.data.sources import hub, hub_files
from seqtrain.data.sources.hub import Hub
from seqtrain.errors import UserError

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


def test_a_missing_test_split_is_a_fault_only_when_asked_for(saved):
    source = Hub(path=str(saved), test_split="tests")
    source.check()
    with pytest.raises(UserError, match=r"data\.test_split=tests: .* has train, validation, test"):
        list(source.documents("test"))


def test_null_text_is_named_with_its_row(tmp_path):
    datasets.Dataset.from_dict({"text": ["x", None]}).save_to_disk(str(tmp_path / "nulls"))
    source = Hub(path=str(tmp_path / "nulls"), validation_split=None, test_split=None, validation_fraction=0.0)
    with pytest.raises(UserError, match="train row 2: text is null"):
        list(source.documents("train"))


def test_a_hub_that_never_answers_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *args, **kwargs: threading.Event().wait())
    monkeypatch.setattr(hub_files, "PATIENCE", 0.1)
    with pytest.raises(UserError, match=r"cannot be reached.*local folder or a save_to_disk copy") as caught:
        Hub(path="nobody/nothing").check()
    assert len(caught.value.lines) == 1


def test_offline_by_the_environment_does_not_even_try(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "reachable", lambda url: pytest.fail("tried the hub"))
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
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
    with pytest.raises(UserError, match=r"data\.revision=abc: the hub is out of reach"):
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


def layout(folder: Path, splits: dict[str, dict[str, list]], features: dict | None = None) -> str:
    """A folder in the hub's layout: parquet files that know their features."""
    folder.mkdir()
    kinds = None if features is None else datasets.Features(features)
    for split, columns in splits.items():
        data = datasets.Dataset.from_dict(columns, features=kinds)
        data.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return str(folder)


LABELLED = {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["negative", "positive"])}


@pytest.mark.parametrize("saved_to_disk", [False, True])
def test_class_labels_become_their_names(tmp_path, saved_to_disk):
    columns = {"sentence": [f"s {i}" for i in range(10)], "label": [i % 2 for i in range(10)]}
    path = layout(tmp_path / "layout", {"train": columns, "validation": {"sentence": [""], "label": [1]}}, LABELLED)
    if saved_to_disk:
        datasets.load_dataset(path).save_to_disk(str(tmp_path / "copy"))
        path = str(tmp_path / "copy")
    source = Hub(path=path, column="sentence", label_column="label", test_split=None, test_fraction=0.2)
    source.check()
    assert source.fields == ("text", "label")
    rows = [*source.rows("train"), *source.rows("test")]
    names = ("negative", "positive")
    assert sorted(map(str, rows)) == [str({"text": f"s {i}", "label": names[i % 2]}) for i in range(10)]
    assert len(list(source.rows("test"))) == 2
    assert list(source.rows("validation")) == [{"text": "", "label": "positive"}]
    assert list(source.documents("validation")) == [""]


@pytest.mark.parametrize(
    ("labels", "expected"), [([3, -1], ["3", "-1"]), ([True, False], ["True", "False"]), (["a", "b"], ["a", "b"])]
)
def test_labels_without_names_are_text(tmp_path, labels, expected):
    path = layout(tmp_path / "layout", {"train": {"text": ["x", "y"], "label": labels}})
    source = Hub(path=path, label_column="label", validation_split=None, test_split=None, validation_fraction=0.0)
    source.check()
    assert [row["label"] for row in source.rows("train")] == expected


def test_secret_labels_are_told_with_their_split(tmp_path):
    splits = {"train": [0, 1], "validation": [-1], "test": [-1]}
    columns = {split: {"sentence": ["x"] * len(labels), "label": labels} for split, labels in splits.items()}
    path = layout(tmp_path / "layout", columns, LABELLED)
    source = Hub(path=path, column="sentence", label_column="label")
    with pytest.raises(UserError, match=r"validation row 1: label is -1, no label; name a split with labels") as caught:
        source.check()
    assert len(caught.value.lines) == 1
    with pytest.raises(UserError, match="test row 1: label is -1"):
        list(source.rows("test"))


@pytest.mark.parametrize("kind", ["Translation", "struct"])
@pytest.mark.parametrize("saved_to_disk", [False, True])
def test_dotted_names_reach_into_a_nested_translation(tmp_path, kind, saved_to_disk):
    text = datasets.Value("string")
    nested = datasets.Translation(["en", "fr"]) if kind == "Translation" else {"en": text, "fr": text}
    pairs = [{"en": f"one {i}", "fr": f"un {i}"} for i in range(10)]
    features = {"id": datasets.Value("string"), "translation": nested}
    path = layout(tmp_path / "layout", {"train": {"id": list("abcdefghij"), "translation": pairs}}, features)
    if saved_to_disk:
        datasets.load_dataset(path).save_to_disk(str(tmp_path / "copy"))
        path = str(tmp_path / "copy")
    columns = {"source_column": "translation.fr", "target_column": "translation.en"}
    source = Hub(path=path, **columns, validation_split=None, test_split=None, validation_fraction=0.2)
    source.check()
    assert source.fields == ("source", "target")
    rows = [*source.rows("train"), *source.rows("validation")]
    assert sorted(row["source"] for row in rows) == [pair["fr"] for pair in pairs]
    assert all(row["target"] == row["source"].replace("un", "one") for row in rows)
    with pytest.raises(UserError, match="holds pairs, not text"):
        source.documents("train")


def test_plain_columns_are_pairs(tmp_path):
    path = layout(tmp_path / "layout", {"train": {"en": ["a"], "de": ["b"]}, "validation": {"en": ["c"], "de": [""]}})
    source = Hub(path=path, source_column="de", target_column="en", test_split=None)
    source.check()
    assert [list(source.rows(split)) for split in ("train", "validation")] == [
        [{"source": "b", "target": "a"}],
        [{"source": "", "target": "c"}],
    ]


def test_a_null_is_no_label(tmp_path):
    path = layout(tmp_path / "nulls", {"train": {"sentence": ["x", "y"], "label": [1, None]}}, LABELLED)
    source = Hub(path=path, column="sentence", label_column="label", validation_split=None, test_split=None)
    with pytest.raises(UserError, match="train row 2: label is null; remove the row or give it a label"):
        list(source.rows("train"))


PRESETS = {
    "imdb": ("text,label", ["test"]),
    "sst2": ("sentence,label", ["validation"]),
    "ag_news": ("text,label", ["test"]),
    "multi30k": ("en,de", ["validation", "test"]),
    "opus_books": ("translation", []),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_reads_a_folder_like_the_hub_s(tmp_path, name):
    conf = files("seqtrain.conf") / "data"
    base, own = (yaml.safe_load((conf / f"{file}.yaml").read_text()) for file in ("hub", name))
    columns, others = PRESETS[name]
    values = {"label": list(range(2)) * 20, "translation": [{"en": str(i), "fr": str(i)} for i in range(40)]}
    rows = {column: values.get(column, [str(i) for i in range(40)]) for column in columns.split(",")}
    path = layout(tmp_path / "layout", dict.fromkeys(["train", *others], rows))
    kept = {key: value for key, value in {**base, **own}.items() if key not in ("defaults", "_target_", "path", "name")}
    source = Hub(path=path, **kept)
    source.check()
    assert all(source.has(split) and next(source.rows(split)) for split in ("train", "validation", "test"))
    assert source.fields == (("text", "label") if "label" in columns else ("source", "target"))
