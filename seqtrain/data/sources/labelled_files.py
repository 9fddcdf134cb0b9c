"""Files of labelled text in common layouts, set by the user or detected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, cast

from seqtrain.data.sources.base import Row, Split, SplitBy
from seqtrain.data.sources.columns import Column, row_of
from seqtrain.data.sources.files import EXTENSIONS, TextFile, check_is_text, find, first_row
from seqtrain.data.sources.guess import (
    FASTTEXT,
    Asked,
    FileLayout,
    Kind,
    Place,
    first_keys,
    keyed_reading,
    loose_reading,
    table_reading,
)
from seqtrain.data.sources.opening import Encoding, Packed, packed_as, readable, unpacked_name
from seqtrain.data.sources.split_files import FileSource, key_of
from seqtrain.data.sources.text import row_cut
from seqtrain.errors import UserError
from seqtrain.files.atomic import expanded

TABLES: dict[str, Kind] = {suffix: kind for suffix, kind in EXTENSIONS.items() if kind != "txt"}
AUTO = "auto"
MAX_LISTED = 3  # files listed per line of output


class LabelledFile(NamedTuple):
    """A file of rows; or of one text, if the file has a `label`."""

    path: Path
    reading: FileLayout
    is_number: bool = False
    label: str | None = None

    @property
    def format(self) -> str:
        """Format of the file; `txt` if the file is one text."""
        return "txt" if self.reading.kind == "folders" else self.reading.kind

    @property
    def columns(self) -> list[Column]:
        """Columns of text and label."""
        text, label = str(self.reading.text), str(self.reading.label)
        return [Column("data.column", text, "text"), Column("data.label_column", label, "label", self.is_number)]

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """Yield the file's rows; raise UserError for a row that cannot be read, when it is reached."""
        reading = self.reading
        if reading.kind != "folders" and reading.kind != "lines":
            columns = self.columns
            if columns[0].name == columns[1].name:
                raise UserError(f"data.label_column={columns[1].name}: is data.column too; name two columns")
            yield from TextFile(self.path, reading.kind, columns, reading.packed, reading.header, reading.quoted).rows(
                limit
            )
            return
        check_is_text(self.path, reading.packed)
        with readable(self.path, reading.packed):
            if self.label is not None:
                yield self._whole(self.label)
            else:
                yield from self._lines()

    def _whole(self, label: str) -> Row:
        with self.reading.packed.open_text(self.path, newline="") as file:
            text = file.read()
        # The last line end belongs to the file, not to the text.
        return {"text": text.removesuffix("\n").removesuffix("\r"), "label": label}

    def _lines(self) -> Iterator[Row]:
        below_header = not self.reading.header
        with self.reading.packed.open_text(self.path) as lines:
            for number, line in enumerate(lines, 1):
                # Any white space separates label and text: files use tabs or spaces.
                words = line.split(None, 1)
                if not words:
                    continue
                if not below_header:
                    below_header = True
                    continue
                place = f"{self.path}:{number}"
                words += [""] * line[-2:-1].isspace()  # a label and a blank: the text is empty
                if len(words) == 1:
                    raise UserError(f"{place}: one word, {words[0][:40]!r}; write a label and a text in each line")
                label, text = words[0], words[1].rstrip()
                # Otherwise the second label would become the first word of the text and reveal the answer.
                if label.startswith(FASTTEXT) and text.startswith(FASTTEXT):
                    raise UserError(f"{place}: several labels in a line; keep one, or split the line")
                yield row_of(place, self.columns, [text, label.removeprefix(FASTTEXT)])


@dataclass(kw_only=True, eq=False)
class LabelledSource(FileSource):
    """Rows of text and label in files, each with its own layout.

    Columns are given by name, or by number from 1 if there is no header. Of several names for a column, the first that
    a file has is used.

    Attributes:
        test_paths: Several test sets, by name; together they are the test split.
        format: Format of the files; auto = detected.
        encoding: Encoding of the text.
        header: True if the first row names the columns; auto = detected.
        column: Column of the text; auto = detected.
        label_column: Column of the label; auto = detected.
        split_by: `document` only; rows cannot be cut by position.
    """

    test_paths: dict[str, str] | None = None
    format: Literal["auto", "jsonl", "csv", "tsv", "parquet", "lines", "folders"] = "auto"
    encoding: Encoding = "utf-8"
    header: bool | Literal["auto"] = "auto"
    column: str | int | list[str] = AUTO
    label_column: str | int | list[str] = AUTO
    split_by: SplitBy = "document"

    called = "labelled"
    document = "a row of a table, a line, or a text of a folder"
    fields = ("text", "label")

    def __post_init__(self) -> None:
        """Check the options; raise UserError where they do not go together."""
        if self.test_paths and self.test_path:
            raise UserError(f"data.test_path={self.test_path}: data.test_paths is given too; add the file there")
        # An empty path would mean the working directory.
        for name, file in (self.test_paths or {}).items():
            if not file:
                raise UserError(f"data.test_paths.{name}=: an empty path; give a file, a glob or a folder")
        header = None if self.header == AUTO else bool(self.header)
        self._asked = Asked(_places(self.column), _places(self.label_column), header)
        if self._asked.text and self._asked.text == self._asked.label:
            raise UserError(f"data.label_column={self.label_column}: is data.column too; name two columns")
        # Checked here: later the message would be that the column is missing from the file.
        if self._asked.by_name and header is False:
            raise UserError("data.header=false: columns then have no names; give their numbers, counted from 1")
        super().__post_init__()
        self._found: dict[Split, list[LabelledFile]] = {}
        self._read_as: dict[str, FileLayout] = {}  # layout by path, for the files found so far
        self._left_out: dict[str, str] = {}  # by folder: a description of the files that are not read

    def _given(self) -> dict[Split, str | None]:
        given = super()._given()
        if self.test_paths:
            given["test"] = ", ".join(self.test_paths.values())
        return given

    def _cut_by(self) -> Literal["row"]:
        return row_cut(self.split_by)

    @property
    def keys(self) -> dict[Split, str]:
        tests: dict[Split, str] = {"test": "data.test_paths"} if self.test_paths else {}
        return super().keys | tests

    def expect_numbers(self) -> None:
        self._asked = replace(self._asked, is_number=True)

    def files(self, split: Split) -> list[LabelledFile]:
        if split not in self._found:
            named = {key_of(split): self.paths[split]}
            if split == "test" and self.test_paths:
                named = {f"data.test_paths.{name}": path for name, path in self.test_paths.items()}
            self._found[split] = [file for key, path in named.items() for file in self._find(split, key, path)]
        return self._found[split]

    def _find(self, split: Split, key: str, path: str) -> list[LabelledFile]:
        files = [file.path for file in find(key, path, "txt", [])]  # of any extension
        where = expanded(path)
        if where.is_dir() and self.format != "lines":
            # Tables have precedence over classes: a README next to them is not a class.
            tables = [file for file in files if unpacked_name(file).suffix.lower() in TABLES]
            if not tables or self.format == "folders":
                return self._class_files(key, where, files)
            files = tables
        elif self.format == "folders":
            raise UserError(f"data.format=folders: {key}={path} is not a folder")
        found = []
        for file in files:
            reading = self._reading(split, file)
            self._read_as[str(file)] = reading
            found.append(LabelledFile(file, reading, self._asked.is_number))
        return found

    def _class_files(self, key: str, home: Path, files: list[Path]) -> list[LabelledFile]:
        if self._asked.text or self._asked.label:
            raise UserError(
                f"{key}={home}: this folder contains no table; leave out data.column and data.label_column, which name "
                "columns of a table"
            )
        texts, left_out = labelled_texts(key, home, files)
        words = f": {counted(texts)}"
        if left_out:
            words += f"; left out: {', '.join(left_out)}"
        self._left_out[str(home)] = words
        reading = FileLayout("folders", packed=Packed("none", self.encoding))
        self._read_as[str(home)] = reading
        found = []
        for path, label in texts:
            # For each file, because a folder may contain compressed and other files.
            own = FileLayout("folders", packed=packed_as(path, self.encoding))
            found.append(LabelledFile(path, own, self._asked.is_number, label))
        return found

    def _reading(self, split: Split, path: Path) -> FileLayout:
        """Return the layout of a file."""
        packed = packed_as(path, self.encoding)
        kind: Kind | None = cast("Kind | None", None if self.format == "auto" else self.format)
        if kind is None:
            kind = TABLES.get(unpacked_name(path).suffix.lower())
        if kind == "jsonl":
            return keyed_reading(path, kind, packed, self._asked, first_keys(path, packed))
        if kind == "parquet":
            return keyed_reading(path, kind, packed, self._asked, _parquet_names(path))
        # A small test set may not show which column repeats, but its labels are those of train.
        known = self._labels_of_train if split != "train" else ()
        if kind != "csv" and kind != "tsv":  # `folders` is handled by the caller
            return loose_reading(path, packed, self._asked, known, sure=kind == "lines")
        first = first_row(path, kind, packed)
        if len(first) == 1 and not self._asked.by_name:
            if kind == "csv":
                raise UserError(f"{path}: has one column, {first[0][:40]!r}; write commas between text and label")
            return loose_reading(path, packed, self._asked, known, sure=False)  # lines, in spite of the extension .tsv
        return table_reading(path, kind, packed, self._asked, known)

    @cached_property
    def _labels_of_train(self) -> set[str]:
        return {row["label"] for row in self._read("train")}

    def notes(self) -> list[str]:
        """Return one line per layout, with its files and with what was left out."""
        # Files of the same layout share a line: a folder may contain hundreds.
        by_words: dict[str, list[str]] = {}
        for path, reading in self._read_as.items():
            by_words.setdefault(reading.words() + self._left_out.get(path, ""), []).append(path)
        lines = []
        for words, paths in by_words.items():
            named = ", ".join(paths[:MAX_LISTED])
            if len(paths) > MAX_LISTED:
                named += f" and {len(paths) - MAX_LISTED} more files"
            lines.append(f"read {named} as {words}")
        return lines


def _places(column: str | int | list[str]) -> tuple[Place, ...]:
    """Return the columns that the user has set; empty if they are to be detected."""
    if column == AUTO:
        return ()
    return tuple(column) if isinstance(column, list) else (column,)


def _parquet_names(path: Path) -> list[str]:
    """Return the columns of a parquet file; raise UserError if it is not one."""
    import pyarrow
    from pyarrow import parquet

    try:
        with readable(path):
            return list(parquet.read_schema(path).names)
    except pyarrow.ArrowException as error:
        raise UserError(f"{path}: not a parquet file that can be read ({str(error).splitlines()[0]})") from None


# Names of folders that are not classes: splits of the data set, and unlabelled texts.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "data.path"),
    **dict.fromkeys(("dev", "valid", "validation", "val"), "data.validation_path"),
    "test": "data.test_path",
}
UNLABELLED = ("unsup", "unlabeled", "unlabelled")
MAX_NAMED = 8  # labels listed per line of output


def labelled_texts(key: str, home: Path, paths: Sequence[Path]) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the files of all classes with their labels, and a description of what was left out.

    Args:
        key: The option that names the folder.
        home: The folder.
        paths: All files below the folder, without hidden files.

    Raises:
        UserError: The subfolders are not classes.
    """
    found: list[tuple[Path, str]] = []
    beside = 0
    unlabelled: Counter[str] = Counter()
    for path in paths:
        inner = path.relative_to(home).parts
        if len(inner) == 1:  # a README or a list, which belongs to no class
            beside += 1
        elif inner[0].lower() in UNLABELLED:
            unlabelled[inner[0]] += 1
        else:
            found.append((path, inner[0]))
    # At the top of a data set the subfolders are splits, which would be learnt as classes.
    labels = {label for _, label in found}
    splits = sorted(label for label in labels if label.lower() in SPLIT_NAMES)
    if splits:
        raise UserError(
            f"{key}={home}: its folders {', '.join(splits)} are splits, not labels; use "
            + " ".join(f"{SPLIT_NAMES[name.lower()]}={home / name}" for name in reversed(splits))
        )
    if len(labels) < 2:
        raise UserError(
            f"{key}={home}: contains neither tables (jsonl, csv, tsv, parquet) nor a folder of texts for each of at "
            f"least two labels ({len(labels)} found)"
        )
    left_out = [f"{count:,} unlabelled texts in {name}" for name, count in unlabelled.items()]
    if beside:
        left_out.append(f"{beside:,} file{'s' * (beside != 1)} next to the folders")
    return found, left_out


def counted(files: Sequence[tuple[Path, str]]) -> str:
    """Return the number of texts of each label in words: `12,500 in neg, 12,500 in pos`."""
    counts = Counter(label for _, label in files)
    words = [f"{count:,} in {label}" for label, count in sorted(counts.items())]
    if len(words) > MAX_NAMED:
        words = [*words[:MAX_NAMED], f"{len(words) - MAX_NAMED} more labels"]
    return ", ".join(words)
