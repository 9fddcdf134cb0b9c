"""Laws of prepared rows: what stands in one row stays together, and only train says what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from seqtrain.data.preprocess import LABELS, TARGET_TOKENIZER, Preprocessor, Rows, prepare_rows
from seqtrain.data.sources.base import Row, Source, Split
from seqtrain.data.tokenizers.recipes import BPE, Char, Recipe, Tokenizer, Word
from tests.support.refused import refusal

LABELLED = {
    "train": [("fine film", "good"), ("", "bad"), ("dull", "bad"), ("", "so so"), ("as fine", "good")],
    "validation": [("", "so so"), ("dull film", "bad")],
    "test": [("new", "good")],
}
PAIRS = {
    "train": [("a cat", "eine Katze"), ("", "leer"), ("gone", ""), ("", ""), ("a dog", "ein Hund")],
    "validation": [("", ""), ("a z", "ein Q")],
}


class Given(Source):
    """Rows from a table."""

    document = "a row"

    def __init__(self, fields: tuple[str, ...], table: dict[str, list[tuple[str, str]]]) -> None:
        self.fields = fields
        self.table = table

    def check(self) -> None: ...

    def documents(self, split: Split) -> Iterator[str]:
        return (row[0] for row in self.table[split])

    def rows(self, split: Split) -> Iterator[Row]:
        return (dict(zip(self.fields, row, strict=True)) for row in self.table[split])

    def has(self, split: Split) -> bool:
        return split in self.table

    def describe(self) -> dict:
        return {}


SENTIMENT, TRANSLATION = Given(("text", "label"), LABELLED), Given(("source", "target"), PAIRS)


def prepared(
    source: Source, cache: Path, recipe: Recipe | None = None, splits=("train", "validation"), **given
) -> tuple[Preprocessor, dict[Split, Rows], list[str]]:
    lines: list[str] = []
    made, rows = prepare_rows(source, recipe or Char(), splits, source.fields, cache=cache, say=lines.append, **given)
    return made, rows, lines


def texts(rows: Rows, field: str, tokenizer: Tokenizer) -> list[str]:
    column = rows.columns[field]
    return [tokenizer.decode(column[row].tolist()) for row in range(len(rows))]


def test_a_row_keeps_its_place_though_a_field_is_empty(tmp_path: Path) -> None:
    made, rows, _ = prepared(SENTIMENT, tmp_path)
    for split in ("train", "validation"):
        assert texts(rows[split], "text", made.tokenizer) == [text for text, _ in LABELLED[split]]
        found = [made.labels[label] for label in rows[split].labels]  # type: ignore[union-attr]
        assert found == [label for _, label in LABELLED[split]]
        assert rows[split].texts("text") == [text for text, _ in LABELLED[split]]
    made, rows, _ = prepared(TRANSLATION, tmp_path)
    assert len(rows["train"]) == len(PAIRS["train"])
    for side, field in enumerate(("source", "target")):
        assert texts(rows["train"], field, made.of(field)) == [pair[side] for pair in PAIRS["train"]]
        assert rows["train"].columns[field].lengths.tolist() == [len(pair[side]) for pair in PAIRS["train"]]


def test_a_shared_tokenizer_is_of_both_sides_and_separate_ones_each_of_its_own(tmp_path: Path) -> None:
    shared, _, _ = prepared(TRANSLATION, tmp_path)
    assert shared.shared
    assert shared.of("source") is shared.of("target") is shared.tokenizer
    letters = {letter for pair in PAIRS["train"] for letter in "".join(pair)}
    assert set(shared.tokenizer.tokens) >= letters
    own, rows, _ = prepared(TRANSLATION, tmp_path, shared=False)
    assert not own.shared
    sides = [set("".join(side)) for side in zip(*PAIRS["train"], strict=True)]
    for field, letters, other in zip(("source", "target"), sides, sides[::-1], strict=True):
        tokens = set(own.of(field).tokens)
        assert tokens >= letters
        assert not tokens & (other - letters)
    assert rows["validation"].columns["source"].num_unknown == 1
    assert rows["validation"].columns["target"].num_unknown == 1
    assert own.hashes.keys() == {"tokenizer", "target_tokenizer"}


def test_vocabularies_are_read_as_they_were_saved(tmp_path: Path) -> None:
    for number, (source, shared) in enumerate([(SENTIMENT, True), (TRANSLATION, True), (TRANSLATION, False)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        made, rows, _ = prepared(source, tmp_path / "cache", BPE(size=270), shared=shared)
        made.save(folder)
        read = Preprocessor.load(folder, made.hashes)
        assert (read.labels, read.hashes, read.shared) == (made.labels, made.hashes, made.shared)
        assert (folder / TARGET_TOKENIZER).exists() != shared
        assert (folder / LABELS).exists() == (source is SENTIMENT)
        again, same, _ = prepared(source, folder / "other", BPE(size=999), preprocessor=read, shared=shared)
        assert again is read
        assert [part.hash for part in same.values()] == [part.hash for part in rows.values()]
        for field, column in same["train"].columns.items():
            assert np.array_equal(column.tokens, rows["train"].columns[field].tokens)


def test_damaged_labels_are_named(tmp_path: Path) -> None:
    made, _, _ = prepared(SENTIMENT, tmp_path / "cache")
    made.save(tmp_path)
    (tmp_path / LABELS).write_text("[")
    assert "labels.json: not a list of labels" in refusal(Preprocessor.load, tmp_path, made.hashes)


def test_of_an_origin_the_tokenizers_are_taken_and_the_labels_are_not(tmp_path: Path) -> None:
    origin = Preprocessor(Char().train(["abc"]), Char().train(["abc"]), ("left", "right"))
    made, _, lines = prepared(SENTIMENT, tmp_path, Word(), origin=origin)
    assert made.tokenizer is origin.tokenizer
    assert made.labels == ("bad", "good", "so so")
    assert not any(line.startswith("tokenizer") for line in lines)


def test_the_second_time_everything_comes_from_the_cache_and_is_the_same(tmp_path: Path) -> None:
    for source in (SENTIMENT, TRANSLATION):
        first, second = (prepared(source, tmp_path, BPE(size=270)) for _ in range(2))
        assert first[2]
        assert second[2] == []
        assert first[0].hashes == second[0].hashes
        for split, rows in first[1].items():
            assert rows.hash == second[1][split].hash
            for field, column in rows.columns.items():
                assert np.array_equal(column.tokens, second[1][split].columns[field].tokens)
                assert np.array_equal(column.documents, second[1][split].columns[field].documents)


def test_the_hash_of_rows_tells_another_label_and_another_field(tmp_path: Path) -> None:
    def hashes(fields: tuple[str, str], train: list[tuple[str, str]]) -> str:
        return prepared(Given(fields, {"train": train}), tmp_path, splits=("train",))[1]["train"].hash

    rows = [("ab", "x"), ("a", "y")]
    found = [
        hashes(("text", "label"), rows),
        hashes(("text", "label"), [("ab", "y"), ("a", "x")]),
        hashes(("source", "target"), rows),
        hashes(("source", "target"), [("ab", "x"), ("a", "z")]),
    ]
    assert len(set(found)) == 4


# -- other kinds of labels ---------------------------------------------------------------------------------------

TAGGED = {
    "train": [("the dog runs", "D N V"), ("dogs", "N")],
    "validation": [("the cat", "D N")],
}


def tagged(folder: Path, **changed: list[tuple[str, str]]) -> tuple[Preprocessor, dict[str, Rows]]:
    source = Given(("text", "label"), {**TAGGED, **changed})
    made, rows, _ = prepared(source, folder, Word(), label_kind="names")
    return made, rows


def test_a_label_for_each_word_is_its_place_among_the_names_of_train(tmp_path: Path) -> None:
    made, rows = tagged(tmp_path)
    assert made.labels == ("D", "N", "V")
    assert [row.tolist() for row in rows["train"].labels] == [[0, 1, 2], [1]]  # type: ignore[union-attr]
    assert [row.tolist() for row in rows["validation"].labels] == [[0, 1]]  # type: ignore[union-attr]
    other = tagged(tmp_path, train=[("the dog runs", "D N V"), ("dogs", "V")])[1]
    assert other["train"].hash != rows["train"].hash
    assert other["validation"].hash == rows["validation"].hash


def test_a_row_whose_labels_do_not_fit_its_words_is_one_line(tmp_path: Path) -> None:
    for row, told in (
        (("the dog", "D"), "data: validation row 1 ('the dog') has 1 labels for 2 words; give one label per word, "),
        (("the dog", "D N V"), "has 3 labels for 2 words"),
        (("the dog", "D X"), "row 1 has the label X, which no row of train has"),
    ):
        assert told in refusal(tagged, tmp_path, validation=[row]), row
