"""Laws of rows: all fields of a row are read together, labels are text, and rows are cut like documents."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import SPLITS, Cut
from seqtrain.data.sources.text import Text
from seqtrain.errors import UserError

ROWS = [{"text": "fine", "label": "1"}, {"text": "", "label": "0"}, {"text": "two\nlines, Łódź", "label": "1"}]


def put(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


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


@pytest.mark.parametrize(("values", "expected"), [([True, False], ["True", "False"]), (["a", "b c"], ["a", "b c"])])
def test_labels_may_be_booleans_and_text(tmp_path, values, expected):
    lines = "".join(json.dumps({"text": "x", "label": value}) + "\n" for value in values)
    assert [row["label"] for row in rows_of(put(tmp_path / "a.jsonl", lines))] == expected
    parquet.write_table(pyarrow.table({"text": ["x", "x"], "label": values}), tmp_path / "a.parquet")
    assert [row["label"] for row in rows_of(tmp_path / "a.parquet")] == expected


def test_without_labels_a_row_is_a_document(tmp_path):
    source = Text(path=str(put(tmp_path / "a.txt", "one\ntwo")), validation_fraction=0.0)
    assert (source.fields, list(source.rows("train"))) == (("text",), [{"text": "one\ntwo"}])


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


def test_rows_are_cut_as_documents_are():
    def cut(by) -> Cut:
        return Cut(by=by, validation=0.1, test=0.2)

    for split in SPLITS:
        documents = cut("document").documents(lambda _: iter(map(str, range(100))), split)
        assert list(map(int, documents)) == list(cut("row").rows(lambda _: iter(range(100)), split))
    with pytest.raises(UserError, match=r"data\.test_fraction=0: there is no test split"):
        Cut(by="row", validation=0.1, test=0.0).rows(lambda _: iter([]), "test")
    with pytest.raises(UserError, match="1 row cannot be split into train and validation and test; give more"):
        cut("row").check(1)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "text,label\nx,1\ny,nan\n", r"a\.csv:3: label is nan, a missing value; remove the row"),
        ("a.txt", "x", r"a txt file has no columns; data\.column and data\.label_column need jsonl"),
    ],
)
def test_what_holds_no_label_is_told_in_one_line(tmp_path: Path, name: str, content: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        Text(path=str(put(tmp_path / name, content)), label_column="label", validation_fraction=0.0).check()
    assert len(caught.value.lines) == 1


def test_all_missing_columns_are_named_at_once(tmp_path):
    with pytest.raises(UserError) as caught:
        rows_of(put(tmp_path / "a.csv", "a,b\nx,1\n"))
    assert len(caught.value.lines) == 2


def test_rows_are_not_cut_in_two():
    with pytest.raises(UserError, match=r"data\.split_by=position: rows with labels"):
        Text(path="a.csv", label_column="label", split_by="position")


def test_dice_are_the_same_everywhere_and_fair():
    assert SplitMix64(0).below(2**64) == 0xE220A8397B1DCDAF  # SplitMix64's published first number for seed 0
    generator = SplitMix64(7)
    counts = [0] * 6
    for _ in range(6000):
        counts[generator.below(6)] += 1
    assert max(abs(count - 1000) for count in counts) < 120
    assert sorted(SplitMix64(1).sample(range(9), 9)) == list(range(9))
