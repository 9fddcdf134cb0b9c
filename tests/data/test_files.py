"""Laws of local files: what is read is what is stored, and each fault is one line that names file, place and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from seqtrain.data.sources.columns import Column
from seqtrain.data.sources.files import find
from seqtrain.data.sources.opening import absent
from seqtrain.data.sources.split_files import CHECKED
from seqtrain.data.sources.text import Text
from seqtrain.errors import UserError

TEXTS = ["one", "two\nlines, 'quoted' \"twice\"", "Łódź 🦊", "nul \0 inside", "returned\r\nand\rback", "tail\n"]


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def whole(path: Path, **options) -> list[str]:
    source = Text(path=str(path), validation_fraction=0.0, **options)
    source.check()
    return list(source.documents("train"))


def table(path: Path, column: str, values: list) -> Path:
    parquet.write_table(pyarrow.table({"id": list(range(len(values))), column: values}), path)
    return path


@pytest.mark.parametrize("text", ["plain\n", "kept\r\nas\rit is", "nul \0 inside", "Łódź 🦊", "\ufeffinside \ufeff"])
def test_txt_is_read_to_the_byte(tmp_path, text):
    assert whole(put(tmp_path / "a.txt", text)) == [text.removeprefix("\ufeff")]


def test_rows_of_every_format_are_the_same_texts(tmp_path):
    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    assert whole(put(tmp_path / "a.jsonl", "\ufeff" + rows + "\n")) == TEXTS
    quoted = "".join('{},"{}"\r\n'.format(i, text.replace('"', '""')) for i, text in enumerate(TEXTS))
    assert whole(put(tmp_path / "a.csv", "\ufeffid,text\r\n" + quoted)) == TEXTS
    assert whole(table(tmp_path / "a.parquet", "text", TEXTS)) == TEXTS
    assert whole(put(tmp_path / "a.tsv", 'id\ttext\n1\t"not quoted\n2\tx\n')) == ['"not quoted', "x"]


def test_a_long_line_is_read_whole(tmp_path):
    text = "long " * 400_000  # over the limits of csv fields and of the preflight
    assert whole(put(tmp_path / "a.csv", f"text\n{text}\n")) == [text]
    assert whole(put(tmp_path / "a.jsonl", json.dumps({"text": text}))) == [text]
    assert whole(put(tmp_path / "a.txt", text)) == [text]


def test_a_folder_gives_every_known_file_below_it_by_path(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/b/c.jsonl", ".hidden/x.txt", "a/.x.txt", "image.png"):
        put(tmp_path / name, json.dumps({"text": name}))
    columns = [Column("data.column", "text", "text")]
    names = [file.path.relative_to(tmp_path).as_posix() for file in find("data.path", str(tmp_path), "auto", columns)]
    assert names == ["a/b/c.jsonl", "a/z.txt", "b.txt"]
    globbed = find("data.path", str(tmp_path / "**" / "*.txt"), "auto", columns)
    assert [file.path.name for file in globbed] == ["z.txt", "b.txt"]


def test_format_overrides_the_extension(tmp_path):
    assert whole(put(tmp_path / "notes.en", "hello\n"), format="txt") == ["hello\n"]


def test_validation_and_test_files_stand_for_themselves(tmp_path):
    paths = [str(put(tmp_path / name, name)) for name in ("train.txt", "valid.txt", "test.txt")]
    source = Text(path=paths[0], validation_path=paths[1], test_path=paths[2])
    source.check()
    assert [list(source.documents(s)) for s in ("train", "validation", "test")] == [
        ["train.txt"],
        ["valid.txt"],
        ["test.txt"],
    ]
    assert source.describe()["files"] == {"train": 1, "validation": 1, "test": 1}


def test_files_of_a_folder_are_read_in_natural_order(tmp_path: Path) -> None:
    names = ["a-2.txt", "a-02x.txt", "a-10.txt", "b/1.txt"]
    for name in names:
        put(tmp_path / name, name)
    assert [file.path for file in find("data.path", str(tmp_path), "auto", [])] == [tmp_path / name for name in names]


def test_a_folder_is_not_meant_where_a_file_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    assert absent(tmp_path / "texts", "file") == "no such file"
    assert absent(tmp_path / "texts", "file or folder").endswith("; did you mean text?")


def test_a_file_that_ends_within_a_character_is_no_utf8(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.txt: not UTF-8 \(byte 0xc3"):
        Text(path=str(put(tmp_path / "a.txt", "é".encode()[:1])), validation_fraction=0.0).check()


def test_a_fault_beyond_the_preflight_is_met_when_read(tmp_path):
    path = put(tmp_path / "a.txt", b"x" * (3 * CHECKED - 1) + "é".encode() + b"\xff")  # é lies across two blocks
    source = Text(path=str(path), validation_fraction=0.0)
    source.check()
    with pytest.raises(UserError, match=r"a\.txt: not UTF-8 \(byte 0xff"):
        list(source.documents("train"))


def test_a_character_across_the_preflight_s_edge_is_no_fault(tmp_path):
    text = "x" * (CHECKED - 1) + "🦊" + "x"
    assert whole(put(tmp_path / "a.txt", text)) == [text]


def test_all_faulty_files_are_named_at_once(tmp_path):
    put(tmp_path / "a.txt", "")
    put(tmp_path / "b.csv", "text\n")
    with pytest.raises(UserError) as caught:
        Text(path=str(tmp_path), validation_path=str(tmp_path / "no.txt")).check()
    assert len(caught.value.lines) == 3


def test_the_preflight_sees_that_one_document_cannot_be_split(tmp_path):
    for name in ("a.txt", "a.jsonl"):
        path = put(tmp_path / name, '{"text": "x"}')
        with pytest.raises(UserError, match=r"use data\.split_by=position"):
            Text(path=str(path)).check()
        Text(path=str(path), split_by="position").check()
    row = json.dumps({"text": "x" * CHECKED}) + "\n"
    Text(path=str(put(tmp_path / "a.jsonl", row * 2))).check()  # more rows than the preflight sees


def test_a_file_in_two_splits_is_refused(tmp_path):
    for name in ("a.txt", "valid.txt"):
        put(tmp_path / name, name)
    with pytest.raises(UserError, match=r"data\.validation_path=.*valid\.txt is in data\.path too"):
        Text(path=str(tmp_path), validation_path=str(tmp_path / "valid.txt")).check()


@pytest.mark.parametrize("name", ["link.txt", "more/../a.txt"])
def test_a_file_in_two_splits_is_refused_under_another_name_too(tmp_path, name):
    path = put(tmp_path / "a.txt", "text")
    (tmp_path / "more").mkdir()
    (tmp_path / "link.txt").symlink_to("a.txt")
    with pytest.raises(UserError, match=r"data\.validation_path=.* is in data\.path too"):
        Text(path=str(path), validation_path=str(tmp_path / name)).check()
