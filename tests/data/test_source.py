"""Laws of the sources: how splits are cut, and what the standard library gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from seqtrain.data.sources.base import SPLITS, Cut, shuffled
from seqtrain.data.sources.python_stdlib import PythonStdlib
from seqtrain.data.sources.text import Text
from seqtrain.errors import UserError

DOCUMENTS = [f"document {i}\n" * (i % 5 + 1) for i in range(100)]


def read(_split: Any) -> Iterator[str]:
    return iter(DOCUMENTS)


def test_every_document_is_in_exactly_one_split_and_keeps_its_order():
    cut = Cut(by="document", validation=0.1, test=0.2)
    parts = [list(cut.documents(read, split)) for split in SPLITS]
    assert [len(part) for part in parts] == [70, 10, 20]
    assert sorted(text for part in parts for text in part) == sorted(DOCUMENTS)
    assert all(part == sorted(part, key=DOCUMENTS.index) for part in parts)


def test_the_choice_of_documents_depends_on_their_number_only():
    assert shuffled(10).tolist() == [2, 4, 6, 8, 5, 1, 7, 0, 9, 3]
    cut = Cut(by="document", validation=0.1, test=0.0)
    first = [DOCUMENTS.index(text) for text in cut.documents(read, "validation")]
    others = [str(i) for i in range(100)]
    again = Cut(by="document", validation=0.1, test=0.0).documents(lambda _: iter(others), "validation")
    assert first == [int(text) for text in again] == sorted(shuffled(100)[:10])


@pytest.mark.parametrize(
    ("given", "sizes"), [((), (70, 10, 20)), (("validation",), (80, 3, 20)), (("test",), (90, 10, 3))]
)
def test_only_a_split_without_a_path_is_cut_off(tmp_path, given, sizes):
    for name, count in {"train": 100, "validation": 3, "test": 3}.items():
        rows = "".join(json.dumps({"text": f"{name} {number}"}) + "\n" for number in range(count))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    paths = {f"{split}_path": str(tmp_path / f"{split}.jsonl") for split in given}
    source = Text(path=str(tmp_path / "train.jsonl"), **paths, validation_fraction=0.1, test_fraction=0.2)
    assert tuple(len(list(source.documents(split))) for split in SPLITS) == sizes


def test_cut_by_position_loses_no_character():
    cut = Cut(by="position", validation=0.1, test=0.2)
    train, validation, test = ("".join(cut.documents(read, split)) for split in SPLITS)
    total = len("".join(DOCUMENTS))
    assert train + validation + test == "".join(DOCUMENTS)
    assert (len(train), len(validation)) == (total * 7 // 10, total * 8 // 10 - total * 7 // 10)


def test_fractions_are_exact_decimals():
    cut = Cut(by="position", validation=0.05, test=0.05)  # 1 - 0.05 - 0.05 < 0.9 in floats
    assert len("".join(cut.documents(lambda _: iter(["x" * 1000]), "train"))) == 900


def test_without_fractions_everything_is_train():
    cut = Cut(by="document", validation=0.0, test=0.0)
    assert list(cut.documents(read, "train")) == DOCUMENTS
    assert not cut.has("validation")
    with pytest.raises(UserError, match=r"data\.validation_fraction=0"):
        cut.documents(read, "validation")


def test_one_document_is_split_by_position_only():
    with pytest.raises(UserError, match=r"use data\.split_by=position"):
        Cut(by="document", validation=0.1, test=0.0).documents(lambda _: iter(["one"]), "train")


@pytest.mark.parametrize(("validation", "test"), [(1.0, 0.0), (-0.1, 0.0), (0.0, 2.0), (0.5, 0.5)])
def test_fractions_that_leave_nothing_to_train_on_are_refused(validation: float, test: float):
    with pytest.raises(UserError, match=r"data\.(validation|test)_fraction"):
        Cut(by="document", validation=validation, test=test)


def test_tiny_shakespeare_is_cut_where_everyone_cuts_it(shared_data):
    source = Text(path=str(shared_data / "tinyshakespeare" / "input.txt"), split_by="position")
    source.check()
    text = (shared_data / "tinyshakespeare" / "input.txt").read_text()
    assert list(source.documents("train")) == [text[:1003854]]
    assert list(source.documents("validation")) == [text[1003854:]]


@pytest.fixture
def library(tmp_path, monkeypatch) -> PythonStdlib:
    """A small standard library, with what is no part of it."""
    for name in (
        "a.py",
        "z.py",
        "json/b.py",
        "site-packages/c.py",
        "test/d.py",
        "x/tests/e.py",
        "encodings/f.py",
        "g.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "_sysconfigdata_x.py").write_text("flags")
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    return PythonStdlib(validation_fraction=0.0, test_fraction=0.0)


def test_the_library_is_its_own_source_files_in_the_order_of_their_paths(library):
    assert list(library.documents("train")) == ["a.py", "json/b.py", "z.py"]


def test_a_library_without_source_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match="use data=text"):
        PythonStdlib().check()


def test_a_file_never_changes_sides_when_another_is_added(library, tmp_path):
    def sides() -> dict[str, str]:
        source = PythonStdlib(validation_fraction=0.3, test_fraction=0.3)
        return {text: split for split in SPLITS for text in source.documents(split)}

    for i in range(30):
        (tmp_path / f"m{i}.py").write_text(f"m{i}.py")
    before = sides()
    (tmp_path / "aaa.py").write_text("aaa.py")
    assert before.items() <= sides().items()
    assert set(before.values()) == set(SPLITS)


def test_the_running_library_has_three_splits():
    source = PythonStdlib()
    source.check()
    assert all(next(iter(source.documents(split))) for split in SPLITS)
    assert set(source.describe()["files"]) == set(SPLITS)
