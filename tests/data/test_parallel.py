"""Laws of local translation data: line i belongs to line i, and what would shift one against the other is refused."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from seqtrain.config import check
from seqtrain.data.sources.base import SPLITS
from seqtrain.data.sources.parallel import Parallel
from seqtrain.errors import UserError
from seqtrain.training.data import make_data
from tests.support.refused import refusal

PAIRS = [
    ("a cat", "eine Katze"),
    ("", "leer"),
    ("form\x0cfeed \u2028 and \x85 next", "ein\rWagen\u2029lauf"),
    ("z", ""),
]


def put(path: Path, content: str) -> str:
    path.write_bytes(content.encode())
    return str(path)


def pairs_of(source: Parallel, split="train") -> list[tuple[str, str]]:
    source.check()
    return [(row["source"], row["target"]) for row in source.rows(split)]


def test_only_line_feeds_end_a_line_and_blank_lines_stay(tmp_path):
    for end in ("\n", "\r\n"):
        for last in (True, False):
            one, other = (end.join(side) + end * last for side in zip(*PAIRS[:3], ("z", "z"), strict=True))
            paths = {"source_path": put(tmp_path / "en", "\ufeff" + one), "target_path": put(tmp_path / "de", other)}
            source = Parallel(**paths, validation_fraction=0.0)
            assert pairs_of(source) == [*PAIRS[:3], ("z", "z")], (end, last)


def test_rows_that_hold_both_sides_are_pairs(tmp_path):
    rows = "".join(json.dumps({"id": 1, "en": en, "de": de}) + "\n" for en, de in PAIRS)
    columns = {"source_column": "en", "target_column": "de", "validation_fraction": 0.0}
    assert pairs_of(Parallel(path=put(tmp_path / "a.jsonl", rows), **columns)) == PAIRS
    assert pairs_of(Parallel(path=put(tmp_path / "a.tsv", "de\ten\nx\ty\n"), **columns)) == [("y", "x")]


def test_a_table_without_a_header_loses_no_pair_whatever_packs_it(tmp_path):
    pairs = [("two men walk", "zwei Männer gehen"), ("a dog", "ein Hund"), ("Go", "Geh")]
    for name, encoding in (("a.tsv", "latin-1"), ("a.csv", "utf-8"), ("a.txt", "utf-8"), ("b.tsv.gz", "latin-1")):
        delimiter = "," if "csv" in name else "\t"
        content = "".join(f"{one}{delimiter}{other}\n" for one, other in pairs).encode(encoding)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        source = Parallel(path=str(tmp_path / name), encoding=encoding, validation_fraction=0.0)
        assert pairs_of(source) == pairs, name
        note = f"read {tmp_path / name} without a header: source in column 1, target in column 2"
        assert source.notes() == [note]


def test_what_may_be_names_or_a_pair_is_refused_and_columns_are_named_by_numbers(tmp_path):
    for row in ("Go\tGeh", "en\tde", "Go.\tGeh.\tCC-BY 2.0"):
        path = put(tmp_path / "a.tsv", f"{row}\n")
        with pytest.raises(UserError, match=r"set data\.source_column=1 data\.target_column=2") as caught:
            Parallel(path=path, validation_fraction=0.0).check()
        assert len(str(caught.value)) < 300
        source = Parallel(path=path, source_column=2, target_column=1, validation_fraction=0.0)
        assert pairs_of(source) == [tuple(row.split("\t")[1::-1])]


def test_line_files_are_read_packed_and_in_the_encoding_that_is_named(tmp_path):
    for encoding, second in (("latin-1", ""), ("utf-16", "\u010a")):  # which holds the byte of a line feed
        for side, text in (("en", f"a{second}b\nc\n"), ("de", "ä\nö\n")):
            (tmp_path / side).write_bytes(gzip.compress(text.encode(encoding)))
        paths = {"source_path": str(tmp_path / "en"), "target_path": str(tmp_path / "de")}
        source = Parallel(**paths, encoding=encoding, validation_fraction=0.0)
        assert [target for _, target in pairs_of(source)] == ["ä", "ö"], encoding


def test_a_split_has_files_of_its_own_or_is_cut_off_by_row(tmp_path):
    lines = "".join(f"{i}\n" for i in range(40))
    paths = {f"{side}_path": put(tmp_path / side, lines) for side in ("source", "target")}
    own = {f"test_{side}_path": put(tmp_path / f"test.{side}", "t\n") for side in ("source", "target")}
    source = Parallel(**paths, **own, validation_fraction=0.1)
    parts = [pairs_of(source, split) for split in SPLITS]
    assert [len(part) for part in parts] == [36, 4, 1]
    assert all(one == other for part in parts for one, other in part)
    assert len({*parts[0], *parts[1]}) == 40
    assert json.loads(json.dumps(source.describe()))["paths"]["test"] == list(own.values())


def test_pairs_are_no_text(tmp_path):
    with pytest.raises(UserError, match="contains pairs, not text"):
        Parallel(path=put(tmp_path / "a.tsv", "source\ttarget\nx\ty\n")).documents("train")


def test_sides_of_different_length_are_refused_with_the_line_that_has_no_fellow(tmp_path):
    paths = {"source_path": put(tmp_path / "x.en", "a\nb\nc"), "target_path": put(tmp_path / "x.de", "a\nb\u2028c\n")}
    source = Parallel(**paths, validation_fraction=0.0)
    for act in (source.check, lambda: list(source.rows("train"))):
        assert re.search(r"x\.en:3: has no corresponding line in .*x\.de, which has 2 lines", refusal(act))


WAYS: dict[str, dict[str, Any]] = {
    "data.path and data.test_source_path": {"path": "a", "test_source_path": "b", "test_target_path": "c"},
    "data.path: missing": {"validation_path": "a"},
    "data.source_path, data.target_path: an empty path": {"source_path": "", "target_path": "a"},
    "data.path=: an empty path": {"path": ""},
}


def test_paths_are_given_in_one_way():
    for says, options in WAYS.items():
        assert says in refusal(Parallel, **options)


def test_all_faults_of_the_files_are_named_at_once(tmp_path):
    good = put(tmp_path / "good.en", "a\nb\n")
    (tmp_path / "bad.de").write_bytes(b"caf\xe9\n\n")
    with pytest.raises(UserError) as caught:
        Parallel(
            source_path=good,
            target_path=str(tmp_path / "bad.de"),
            validation_source_path=str(tmp_path / "god.en"),
            validation_target_path=good,
            test_source_path=put(tmp_path / "empty", ""),
            test_target_path=put(tmp_path / "empty too", ""),
        ).check()
    bad, near, empty = caught.value.lines
    assert "bad.de: not UTF-8 (byte 0xe9" in bad
    assert near.endswith("no such file; did you mean good.en?")
    assert "is empty" in empty


def test_the_same_files_in_two_splits_are_refused_under_another_name_too(tmp_path):
    one, other = put(tmp_path / "a", "a\nb\n"), put(tmp_path / "b", "a\nb\n")
    (tmp_path / "link").symlink_to("a")
    again = {"test_source_path": str(tmp_path / "link"), "test_target_path": other}
    said = refusal(Parallel(source_path=one, target_path=other, **again).check)
    assert re.match(r"data\.test_source_path=.* is in data\.source_path too", said)


def test_pairs_with_an_empty_side_are_counted(tmp_path):
    (tmp_path / "source.txt").write_text("one\n\ntwo\n\n" * 20)
    (tmp_path / "target.txt").write_text("eins\nleer\n\nleer\n" * 20)
    words = [f"data.{side}_path={tmp_path / side}.txt" for side in ("source", "target")]
    config = check.compose(["task=translation", "data=parallel", "data.validation_fraction=0.5", *words]).config
    said: list[str] = []
    make_data(config, ("train",), said.append)
    counted = [line for line in said if "is empty in" in line]
    assert [line.partition(" is empty")[0] for line in counted] == ["train: source", "train: target"]
    assert all(line.endswith("of 40 pairs; they are kept") for line in counted)
