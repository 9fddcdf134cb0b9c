"""A stranger's folder in the layout of the hub, or a save_to_disk copy, leads to no host and is one line at worst."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from datasets import Dataset, DatasetDict, Features, Image, Value

from seqtrain.data.sources.hub import Hub
from tests.support import refused
from tests.support.untrusted_runs import ALIASES

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of texts in the layout of the hub."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data" / "more").mkdir(parents=True)
    (tmp_path / "data" / "train.csv").write_text("text\na\nb\n")
    (tmp_path / "data" / "more" / "train.csv").write_text("text\nc\n")
    return tmp_path / "data"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A save_to_disk copy of one split."""
    Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def assert_unasked(listener: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        listener.accept()


def texts(folder: Path, column: str = "text") -> list[str]:
    return sorted(Hub(path=str(folder), column=column, validation_split=None, test_split=None)._texts("train"))


def refusal(folder: Path, case: str = "") -> str:
    """Return the one line that the folder is refused with."""
    said = refused.refusal(Hub(path=str(folder), validation_split=None, validation_fraction=0.5).check)
    assert str(folder) in said, (case, said)
    return said


def card(folder: Path, file: str, **content: Any) -> None:
    text = yaml.safe_dump(content)
    (folder / file).write_text(f"---\n{text}\n---\n" if file == "README.md" else text)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# -- no host --------------------------------------------------------------------------------------------------------

ADDRESSES = {
    "file": "http://{}/x.csv",
    "pattern": "http://{}/*.csv",
    "chain": "zip://*.csv::http://{}/x.zip",
    "chain of a file below": "x.zip::http://{}",
    "hub": "hf://datasets/evil/x.csv",
    "no slashes": "http:{}",
}


def test_a_local_data_set_that_names_an_address_asks_nobody(
    data: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://{address(listener)}")
    for file in ("README.md", ".huggingface.yaml"):
        for pattern in ADDRESSES.values():
            named = pattern.format(address(listener))
            card(data, file, configs=[{"config_name": "default", "data_files": [{"split": "train", "path": [named]}]}])
            assert f"names {named}, a URL" in refusal(data), file
            assert_unasked(listener)
        (data / file).unlink()


def test_the_part_of_a_readme_is_judged_that_is_read(data: Path, listener: socket.socket) -> None:
    named = f"http://{address(listener)}/x.csv"
    for end in ("\r", "\n---x: 1\n"):
        front = f"a: 1{end}configs: [{{config_name: default, data_files: '{named}'}}]"
        (data / "README.md").write_bytes(f"---{end[0]}{front}{end[0]}---\n".encode())
        assert f"names {named}, a URL" in refusal(data), end
    assert_unasked(listener)


def test_a_folder_of_a_data_set_is_no_address(data: Path, listener: socket.socket) -> None:
    card(data, "README.md", configs=[{"config_name": "default", "data_dir": f"x::http://{address(listener)}"}])
    assert "a URL" in refusal(data)
    (data / "README.md").unlink()
    (data / "train.csv::http:").write_text("text\na\n")
    assert "would be read as a URL" in refusal(data)
    assert_unasked(listener)


def test_a_split_of_a_saved_copy_is_a_folder_in_it(saved: Path, listener: socket.socket, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    DatasetDict({"train": Dataset.from_dict({"text": ["a"]})}).save_to_disk(whole)
    assert texts(whole) == ["a"]
    for split, says in ((str(saved), "outside"), ("../saved", "outside"), (f"x::http://{address(listener)}", "a URL")):
        change(whole / "dataset_dict.json", splits=[split])
        assert f"names {split}, {says}" in refusal(whole).replace("which is ", "")
    change(whole / "dataset_dict.json", splits=["linked"])
    (whole / "linked").symlink_to(saved)
    assert "names linked, which is outside of this folder" in refusal(whole)
    assert_unasked(listener)


def test_a_picture_beside_a_text_is_not_opened(tmp_path: Path, listener: socket.socket) -> None:
    seen = {"bytes": None, "path": f"http://{address(listener)}/x.png"}
    stored = Features({"pair": {"text": Value("string"), "seen": {"bytes": Value("binary"), "path": Value("string")}}})
    rows = Dataset.from_dict({"pair": [{"text": "a", "seen": seen}]}, features=stored)
    rows.save_to_disk(tmp_path / "seen")
    told = Features({"pair": {"text": Value("string"), "seen": Image()}})
    change(tmp_path / "seen" / "dataset_info.json", features=told.to_dict())
    assert texts(tmp_path / "seen", "pair.text") == ["a"]
    assert_unasked(listener)


def test_an_honest_data_set_may_say_of_itself_what_it_likes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.rename(data.with_name("csv"))  # the name of a reader of the hub
    monkeypatch.chdir(data.parent)
    folder = Path("csv")
    assert texts(folder) == ["a", "b", "c"]
    configs = "configs: &all\n- {config_name: default, data_dir: more, data_files: [{split: train, path: 't*.csv'}]}"
    features = "dataset_info: {features: [{name: text, dtype: string}]}"
    (folder / "README.md").write_text(f"---\n{configs}\n{features}\nothers: *all\n---\n# Data\n---\n")
    card(folder, ".huggingface.yaml", license="mit")
    assert texts(folder) == ["c"]


# -- one line -------------------------------------------------------------------------------------------------------

ABOUT: list[tuple[str, str, str]] = [
    ("README.md", "a list", "---\n- 1\n---\n"),
    ("README.md", "configurations that are no mappings", "---\nconfigs: [1]\n---\n"),
    ("README.md", "a number with colons", f"---\na: 1{':59' * 9999}\n---\n"),
    (".huggingface.yaml", "an anchor that is not there", "a: &x 1\nb: *y\n"),
    (".huggingface.yaml", "aliases", ALIASES),
    (".huggingface.yaml", "nested too deep", "a: " + "[" * 1000),
    (".huggingface.yaml", "large", "#" * (1 << 20) + "##"),
    (".huggingface.yaml", "not UTF-8", "\udcff"),
    ("dataset_infos.json", "of no kind", '{"default": {"splits": 5}}'),
]


def test_what_a_data_set_says_of_itself_in_another_shape_is_one_line(data: Path) -> None:
    for file, case, content in ABOUT:
        (data / file).write_bytes(content.encode("utf-8", "surrogateescape"))
        refusal(data, case)
        (data / file).unlink()
    for file in (".huggingface.yaml", "README.md", "dataset_infos.json"):
        os.mkfifo(data / file)
        assert "neither a file nor a folder" in refusal(data), file
        (data / file).unlink()
    (data.parent / "secret.txt").write_text("secret")
    (data / "README.md").symlink_to(data.parent / "secret.txt")
    assert "README.md" in refusal(data)


STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "split that is a list": ("state.json", {"_split": [1]}),
    "no files": ("state.json", {"_data_files": []}),
    "file without a name": ("state.json", {"_data_files": [{}]}),
    "unknown format": ("state.json", {"_format_type": [1]}),
    "version that is a list": ("dataset_info.json", {"version": [1], "splits": 5}),
    "features that are a list": ("dataset_info.json", {"features": [1]}),
    "translation over a text": (
        "dataset_info.json",
        {"features": {"text": {"languages": ["de", "en"], "_type": "Translation"}}},
    ),
}


def test_a_saved_copy_of_another_shape_is_one_line(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (file, values) in STATES.items():
        sound = (saved / file).read_text()
        change(saved / file, **values)
        refusal(saved, name)
        (saved / file).write_text(sound)

    def fails(*_: Any) -> None:
        raise AttributeError("of\nmany lines")

    monkeypatch.setattr(datasets, "load_from_disk", fails)
    assert refusal(saved).endswith("of many lines")
