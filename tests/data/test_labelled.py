"""Laws of labelled files: no row is swallowed as a header, no header is trained on, and folds share no text."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from collections import Counter
from pathlib import Path
from typing import Any
from unicodedata import normalize

from seqtrain.data.sources.labelled import Labelled
from tests.data.test_files import put
from tests.support.refused import refusal

ROWS = [(f"a film number {n} of its kind", "good" if n % 2 else "bad") for n in range(12)]


def read(path: Path, **options: Any) -> tuple[list[tuple[str, str]], str]:
    source = Labelled(path=str(path), validation_fraction=0.0, **options)
    source.check()
    rows = [(row["text"], row["label"]) for row in source.rows("train")]
    return rows, " ".join(source.notes())


def table(*heads: str, rows: list[tuple[str, str]] = ROWS, sep: str = "\t", flip: bool = False) -> str:
    lines = [sep.join(heads)] if heads else []
    lines += [sep.join(reversed(row) if flip else row) for row in rows]
    return "\n".join(lines) + "\n"


AS_THEY_COME = {
    "header": ("a.tsv", table("text", "label"), "tsv with a header: text in column text, label in column label"),
    "other names": ("a.tsv", table("sentence", "gold"), "text in column sentence, label in column gold (2 labels)"),
    "no header": ("a.tsv", table(), "tsv without a header: text in column 1, label in column 2 (2 labels)"),
    "label first": ("a.csv", table(sep=",", flip=True), "csv without a header: text in column 2, label in column 1"),
    "blank": ("a.txt", table(sep=" ", flip=True), "lines of a label and a text (2 labels)"),
    "trec": ("a.label", table(sep=" ", flip=True), "lines of a label and a text (2 labels)"),
    "tab in txt": ("a.txt", table(flip=True), "tsv without a header: text in column 2, label in column 1"),
    "fasttext": (
        "a.train",
        "".join(f"__label__{label} {text}\n" for text, label in ROWS),
        "lines of a label and a text (2 labels)",
    ),
    "quoted tsv": (
        "a.tsv",
        "text\tlabel\n" + "".join(f'"{text}"\t"{label}"\n' for text, label in ROWS),
        "tsv with a header, values in quotes",
    ),
    "gz": ("a.tsv.gz", gzip.compress(table().encode()), "unpacked by gzip"),
    "bz2": ("a.tsv.bz2", bz2.compress(table().encode()), "unpacked by bzip2"),
    "xz under another name": ("a.tsv", lzma.compress(table().encode()), "unpacked by xz"),
}


def test_a_file_is_read_as_it_comes_row_for_row_and_the_reading_is_said(tmp_path: Path) -> None:
    for case, (name, content, words) in AS_THEY_COME.items():
        rows, said = read(put(tmp_path / name, content))
        assert rows == ROWS, case
        assert f"read {tmp_path / name} as " in said, case
        assert words in said, case


def test_a_first_row_of_numbers_is_no_header_and_of_names_is_one(tmp_path: Path) -> None:
    numbered = [(text, str(n % 2)) for n, (text, _) in enumerate(ROWS)]
    assert read(put(tmp_path / "a.csv", table(rows=numbered, sep=",")))[0] == numbered
    assert read(put(tmp_path / "b.csv", table("phrase", "mark", rows=numbered, sep=",")))[0] == numbered
    # A phrase may be a word that columns are called by.
    first = [("content", "1"), *numbered]
    assert read(put(tmp_path / "c.csv", table(rows=first, sep=",")))[0] == first


FAULTS = {
    "a rare label or a header": (
        "a.tsv",
        table("what is it", "ugly"),
        {},
        r"cannot determine if the first row \('what is it', 'ugly'\) is a header; set data\.header=true",
    ),
    "two texts": ("a.csv", table("title", "review", sep=","), {}, r"2 columns that may be the text: title, review"),
    "a book": ("a.txt", "".join(f"w{n} and so on\n" for n in range(50)), {}, "begin with 50 different words"),
    "joined files": ("a.tsv", table("text", "label") * 2, {}, r"a\.tsv:14: the header is repeated here"),
    "a word alone": ("a.txt", table(sep=" ", flip=True) + "good\n", {}, r"a\.txt:13: one word, 'good'"),
    "several labels": ("a.ft", "__label__a __label__b x y\n" * 4, {}, "several labels in a line"),
    "latin-1": ("a.tsv", table().encode() + b"caf\xe9\tbad\n", {}, r"not UTF-8 .*data\.encoding=latin-1"),
    "not cp1252": ("a.tsv", table().encode() + b"\x81\tbad\n", {"encoding": "cp1252"}, r"not cp1252 .*set data\.enc"),
    "cut off gz": ("a.tsv.gz", gzip.compress(table().encode())[:-12], {}, "cannot be decompressed"),
    "no such column": ("a.tsv", table("text", "label"), {"label_column": "lable"}, "did you mean label"),
    "beyond the columns": ("a.tsv", table(), {"label_column": 3}, r"data\.label_column=3: .* has 2 columns"),
    "splits": ("train/good/a.txt", "x", {}, r"are splits, not labels; use data\.path=\S*/train$"),
    "one class": ("good/a.txt", "x", {}, r"a folder of texts for each of at least two labels \(1 found\)"),
}


def test_what_cannot_be_told_is_refused_in_one_line(tmp_path: Path) -> None:
    for number, (case, (name, content, options, expected)) in enumerate(FAULTS.items()):
        path = put(tmp_path / str(number) / name, content)
        said = refusal(read, tmp_path / str(number) if "/" in name else path, **options)
        assert re.search(expected, said), (case, said)


def test_the_user_s_word_on_a_header_settles_it(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", table("what is it", "ugly"))
    assert read(path, header=False)[0] == [("what is it", "ugly"), *ROWS]
    assert read(path, header=True)[0] == ROWS


def test_another_split_is_read_by_the_labels_of_train_and_by_column_names_of_its_own(tmp_path: Path) -> None:
    train = put(tmp_path / "a.tsv", table("sentence", "label"))
    test = put(tmp_path / "b.tsv", table(rows=ROWS[:2], flip=True))  # too few to tell labels by themselves
    source = Labelled(path=str(train), test_path=str(test))
    source.check()
    assert [(row["text"], row["label"]) for row in source.rows("test")] == ROWS[:2]
    other = put(tmp_path / "c.tsv", table("body", "class"))
    source = Labelled(path=str(train), test_path=str(other), column=["sentence", "body"])
    assert [(row["text"], row["label"]) for row in source.rows("test")] == ROWS


def test_a_quote_that_is_part_of_a_sentence_stays(tmp_path: Path) -> None:
    rows = [('"so" he "said"', "good"), ('"all of it"', "bad"), *ROWS]
    assert read(put(tmp_path / "a.tsv", table("text", "label", rows=rows)))[0] == rows


def test_latin_1_by_option(tmp_path: Path) -> None:
    rows = [("café au lait", "good"), *ROWS]
    rows_read, said = read(put(tmp_path / "a.tsv", table(rows=rows).encode("latin-1")), encoding="latin-1")
    assert rows_read == rows
    assert "as latin-1" in said


def test_a_folder_for_each_label_gives_its_texts_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    for name in ("pos/1.txt", "neg/2.txt", "neg/3.txt", "unsup/4.txt", "urls.txt"):
        put(tmp_path / name, f"text of {name}\n")
    rows, said = read(tmp_path)
    assert rows == [("text of neg/2.txt", "neg"), ("text of neg/3.txt", "neg"), ("text of pos/1.txt", "pos")]
    assert "2 in neg, 1 in pos; left out: 1 unlabelled texts in unsup, 1 file next to the folders" in said


def test_several_test_sets_are_one_split_and_none_is_train_too(tmp_path: Path) -> None:
    paths = {name: str(put(tmp_path / f"{name}.tsv", table())) for name in ("train", "news", "films")}
    source = Labelled(path=paths.pop("train"), test_paths=paths)
    source.check()
    assert sum(1 for _ in source.rows("test")) == 2 * len(ROWS)
    assert "is in data.path too" in refusal(Labelled(path=paths["news"], test_paths=paths).check)


# -- folds -------------------------------------------------------------------------------------------------------------

FOLDS = 5


def write(path: Path, copies: int = 1) -> Path:
    lines = [f"sentence {n} of them\t{'abc'[n * n % 3]}\n" for n in range(103)]
    lines += ["a text  again\ta\n", "A text again\tb\n"] * copies  # equal but for case and white space
    path.write_text("text\tlabel\n" + "".join(lines))
    return path


def split(path: Path, fold: int, name: str = "test", **options) -> list[tuple[str, str]]:
    source = Labelled(path=str(path), folds=FOLDS, fold=fold, **options)
    source.check()
    return [(row["text"], row["label"]) for row in source.rows(name)]


def test_folds_are_disjoint_together_everything_and_balanced_by_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv")
    whole = Labelled(path=str(path), validation_fraction=0.0)
    everything = Counter((row["text"], row["label"]) for row in whole.rows("train"))
    tested: Counter[tuple[str, str]] = Counter()
    for fold in range(FOLDS):
        parts = [Counter(split(path, fold, name)) for name in ("train", "validation", "test")]
        assert sum(parts, Counter()) == everything
        assert all(parts)
        tested += parts[2]
    assert tested == everything
    assert split(path, 2) == split(path, 2)
    assert split(path, 2) != split(path, 2, fold_seed=1)
    without_copies = write(tmp_path / "b.tsv", copies=0)
    counts = [Counter(label for _, label in split(without_copies, fold)) for fold in range(FOLDS)]
    for label in "ab":
        of_label = [count[label] for count in counts]
        assert max(of_label) - min(of_label) <= 1


def test_equal_texts_stand_in_one_split_of_one_fold(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", copies=3)
    for fold in range(FOLDS):
        seen: list[str] = []
        for name in ("train", "validation", "test"):
            seen += {" ".join(text.lower().split()) for text, _ in split(path, fold, name)}
        assert len(seen) == len(set(seen))
    source = Labelled(path=str(path), folds=FOLDS, fold=0)
    source.check()
    assert "repeated texts (1 in 6 rows) are each kept in one fold" in source.notes()[-1]


def test_nfc_and_nfd_of_one_text_stand_in_one_fold(tmp_path: Path) -> None:
    texts = [f"café {n}" for n in range(40)]
    forms = [normalize(form, text) for text in texts for form in ("NFC", "NFD")]
    (tmp_path / "a.tsv").write_text(
        "text\tlabel\n" + "".join(f"{text}\t{n % 4 // 2}\n" for n, text in enumerate(forms))
    )
    tested = [text for text, _ in split(tmp_path / "a.tsv", 0)]
    assert 0 < len(tested) < len(forms)
    assert len(tested) == 2 * len({normalize("NFC", text) for text in tested})


NO_FOLDS: dict[str, dict[str, Any]] = {
    "data.folds=5: set data.fold to the fold": {"folds": 5},
    "data.fold=1: data.folds is missing": {"fold": 1},
    "must be from 0 to 4": {"folds": 5, "fold": 5},
    "data.test_path is given too": {"folds": 5, "fold": 0, "test_path": "b.tsv"},
    "use fewer folds": {"folds": 200, "fold": 0},
}


def test_folds_that_make_no_cross_validation_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv")
    for says, options in NO_FOLDS.items():
        assert says in refusal(lambda given: Labelled(path=str(path), **given).check(), options)
    path.write_text(path.read_text() + "once only\tz\n")
    assert "the label z has only one text" in refusal(split, path, 0)
