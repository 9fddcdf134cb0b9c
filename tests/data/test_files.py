"""Laws of local files: what is read is what is stored, row for row, and each fault is one line with file and place."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import SPLITS
from seqtrain.data.sources.columns import Column
from seqtrain.data.sources.files import find
from seqtrain.data.sources.split_files import CHECKED
from seqtrain.data.sources.text import Text
from seqtrain.errors import UserError
from tests.support.refused import refusal

ROWS = [{"text": "fine", "label": "1"}, {"text": "", "label": "0"}, {"text": "two\nlines, Łódź", "label": "1"}]


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def whole(path: Path, **options) -> list[str]:
    source = Text(path=str(path), validation_fraction=0.0, **options)
    source.check()
    return list(source.documents("train"))


def rows_of(path: Path, **options) -> list[dict[str, str]]:
    source = Text(path=str(path), label_column="label", validation_fraction=0.0, **options)
    source.check()
    assert source.fields == ("text", "label")
    assert list(source.documents("train")) == [row["text"] for row in source.rows("train")]
    return list(source.rows("train"))


def test_rows_of_every_format_are_the_same(tmp_path):
    lines = "".join(json.dumps({**row, "label": int(row["label"])}) + "\n" for row in ROWS)
    assert rows_of(put(tmp_path / "a.jsonl", lines)) == ROWS
    quoted = "".join(f'{row["label"]},"{row["text"]}"\n' for row in ROWS)
    assert rows_of(put(tmp_path / "a.csv", "label,text\n" + quoted)) == ROWS
    assert rows_of(put(tmp_path / "a.tsv", "n\tlabel\ttext\n1\t1\tfine\n2\t0\t\n")) == ROWS[:2]
    columns = {"label": [int(row["label"]) for row in ROWS], "text": [row["text"] for row in ROWS]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert rows_of(tmp_path / "a.parquet") == ROWS


def test_labels_may_be_booleans_and_text(tmp_path):
    for values, expected in (([True, False], ["True", "False"]), (["a", "b c"], ["a", "b c"])):
        lines = "".join(json.dumps({"text": "x", "label": value}) + "\n" for value in values)
        assert [row["label"] for row in rows_of(put(tmp_path / "a.jsonl", lines))] == expected
        parquet.write_table(pyarrow.table({"text": ["x", "x"], "label": values}), tmp_path / "a.parquet")
        assert [row["label"] for row in rows_of(tmp_path / "a.parquet")] == expected


def test_a_tsv_has_no_quotes_a_long_line_is_read_whole_and_format_overrides_the_extension(tmp_path):
    assert whole(put(tmp_path / "a.tsv", 'id\ttext\n1\t"not quoted\n2\tx\n')) == ['"not quoted', "x"]
    text = "long " * 400_000  # over the limits of csv fields and of the preflight
    assert whole(put(tmp_path / "a.csv", f"text\n{text}\n")) == [text]
    assert whole(put(tmp_path / "a.jsonl", json.dumps({"text": text}))) == [text]
    assert whole(put(tmp_path / "notes.en", text), format="txt") == [text]


def test_a_folder_gives_every_known_file_below_it_in_natural_order(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/b/c-10.jsonl", "a/b/c-2.jsonl", ".hidden/x.txt", "a/.x.txt", "image.png"):
        put(tmp_path / name, json.dumps({"text": name}))
    columns = [Column("data.column", "text", "text")]
    names = [file.path.relative_to(tmp_path).as_posix() for file in find("data.path", str(tmp_path), "auto", columns)]
    assert names == ["a/b/c-2.jsonl", "a/b/c-10.jsonl", "a/z.txt", "b.txt"]
    globbed = find("data.path", str(tmp_path / "**" / "*.txt"), "auto", columns)
    assert [file.path.name for file in globbed] == ["z.txt", "b.txt"]


def test_a_split_s_own_rows_and_those_cut_off_keep_text_and_label_together(tmp_path):
    train = put(tmp_path / "a.csv", "text,label\n" + "".join(f"t{i},{i}\n" for i in range(50)))
    test = put(tmp_path / "b.csv", "text,label\nx,1\n")
    source = Text(path=str(train), test_path=str(test), label_column="label", validation_fraction=0.2)
    source.check()
    parts = {split: list(source.rows(split)) for split in SPLITS}
    assert [len(parts[split]) for split in SPLITS] == [40, 10, 1]
    assert {row["text"] for row in parts["train"]}.isdisjoint(row["text"] for row in parts["validation"])
    assert all(row["text"] == f"t{row['label']}" for row in parts["train"] + parts["validation"])
    plain = Text(path=str(train), test_path=str(test), validation_fraction=0.2)
    assert list(plain.documents("validation")) == [row["text"] for row in parts["validation"]]


def test_a_fault_beyond_the_preflight_is_met_when_read(tmp_path):
    path = put(tmp_path / "a.txt", b"x" * (3 * CHECKED - 1) + "é".encode() + b"\xff")  # é lies across two blocks
    source = Text(path=str(path), validation_fraction=0.0)
    source.check()
    with pytest.raises(UserError, match=r"a\.txt: not UTF-8 \(byte 0xff"):
        list(source.documents("train"))


def test_a_character_across_the_preflight_s_edge_is_no_fault_and_one_that_the_file_cuts_is(tmp_path):
    text = "x" * (CHECKED - 1) + "🦊" + "x"
    assert whole(put(tmp_path / "a.txt", text)) == [text]
    assert "a.txt: not UTF-8 (byte 0xc3" in refusal(whole, put(tmp_path / "a.txt", "é".encode()[:1]))


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


FAULTS: dict[str, tuple[str, str]] = {
    "a.csv": ("text,label\nx,1\ny,nan\n", "a.csv:3: label is nan, a missing value; remove the row"),
    "a.txt": ("x", "a txt file has no columns; data.column and data.label_column need jsonl"),
}


def test_what_holds_no_label_is_told_in_one_line_and_all_missing_columns_at_once(tmp_path: Path) -> None:
    for name, (content, says) in FAULTS.items():
        assert says in refusal(rows_of, put(tmp_path / name, content)), name
    with pytest.raises(UserError) as caught:
        rows_of(put(tmp_path / "a.csv", "a,b\nx,1\n"))
    assert len(caught.value.lines) == 2


def test_dice_are_the_same_everywhere_and_fair():
    assert SplitMix64(0).below(2**64) == 0xE220A8397B1DCDAF  # SplitMix64's published first number for seed 0
    generator = SplitMix64(7)
    counts = [0] * 6
    for _ in range(6000):
        counts[generator.below(6)] += 1
    assert max(abs(count - 1000) for count in counts) < 120
    assert sorted(SplitMix64(1).sample(range(9), 9)) == list(range(9))
