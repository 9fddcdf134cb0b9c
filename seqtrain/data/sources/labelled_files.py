"""Files of labelled text in common layouts: each is read as asked for, as recorded by a run, or as detected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from seqtrain.data.sources.base import Row, Split
from seqtrain.data.sources.columns import Column, row_of
from seqtrain.data.sources.files import TextFile, check_delimiter, check_is_text, find, first_row
from seqtrain.data.sources.guess import (
    FASTTEXT,
    Asked,
    Kind,
    Reading,
    first_keys,
    keyed_reading,
    loose_reading,
    table_reading,
)
from seqtrain.data.sources.opening import Packed, packed_as, readable, unpacked_name
from seqtrain.data.sources.split_files import SplitFiles, key_of
from seqtrain.errors import UserError
from seqtrain.files.atomic import expanded

EXTENSIONS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
MAX_LISTED = 3  # files that one line names


class LabelledFile(NamedTuple):
    """A file of rows, or of one text if it has a `label` itself."""

    path: Path
    reading: Reading
    is_number: bool = False
    label: str | None = None

    @property
    def format(self) -> str:
        """Format of the file; `txt` for a whole text."""
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
        # The end of the last line is the file's, not the text's.
        return {"text": text.removesuffix("\n").removesuffix("\r"), "label": label}

    def _lines(self) -> Iterator[Row]:
        below_header = not self.reading.header
        with self.reading.packed.open_text(self.path) as lines:
            for number, line in enumerate(lines, 1):
                # Any blanks part a label from its text: files come with tabs and with spaces.
                words = line.split(None, 1)
                if not words:
                    continue
                if not below_header:
                    below_header = True
                    continue
                place = f"{self.path}:{number}"
                words += [""] * line[-2:-1].isspace()  # a label, a blank and no text: it is empty
                if len(words) == 1:
                    raise UserError(f"{place}: one word, {words[0][:40]!r}; a line is a label and a text")
                label, text = words[0], words[1].rstrip()
                # Otherwise the second label would be the first word of the text, and give the answer away.
                if label.startswith(FASTTEXT) and text.startswith(FASTTEXT):
                    raise UserError(
                        f"{place}: several labels in a line; seqtrain takes one: keep it, or split the line"
                    )
                yield row_of(place, self.columns, [text, label.removeprefix(FASTTEXT)])


class LabelledFiles(SplitFiles):
    """Files of each split, each with its layout."""

    def __init__(
        self,
        paths: Mapping[Split, str | None],
        format: Kind | Literal["auto"],
        asked: Asked,
        encoding: str,
        tests: Mapping[str, str],
    ) -> None:
        """Set the paths and options.

        Args:
            paths: Path of each split, or None.
            format: Format of all files; auto = detected.
            asked: Options that the user has set.
            encoding: Encoding of the text.
            tests: Several test sets by name; together they are the test split.
        """
        super().__init__(paths, "auto", [])
        self._tests = tests
        if tests:
            self.paths["test"] = ", ".join(tests.values())
        self.asked = asked
        self._kind = format
        self._encoding = encoding
        self._found: dict[Split, list[LabelledFile]] = {}
        self._known: set[str] | None = None  # the labels of train
        self._recorded: dict[str, Reading] = {}
        self.read_as: dict[str, Reading] = {}  # by path, what was settled so far
        self.left_out: dict[str, str] = {}  # by path of a folder, in words

    def recall(self, recorded: Mapping[str, Any]) -> None:
        """Use the layouts that a run has recorded, because another version may detect others."""
        # A malformed record is ignored: the layout of its file is then detected.
        for path, value in recorded.items():
            reading = Reading.from_plain(value)
            if reading is not None:
                self._recorded[path] = reading

    def _files(self, split: Split) -> list[LabelledFile]:
        if split not in self._found:
            found: list[LabelledFile] = []
            if split == "test" and self._tests:
                for name, path in self._tests.items():
                    found += self._find(split, f"data.test_paths.{name}", path)
            else:
                found = self._find(split, key_of(split), self.paths[split])
            self._found[split] = found
        return self._found[split]

    @property
    def keys(self) -> dict[Split, str]:
        found = super().keys
        if self._tests:
            found["test"] = "data.test_paths"
        return found

    def _find(self, split: Split, key: str, path: str) -> list[LabelledFile]:
        files = [file.path for file in find(key, path, "txt", [])]  # of any extension
        where = expanded(path)
        if where.is_dir() and self._kind != "lines":
            # Tables decide before classes do: a README beside them is no class.
            tables = [file for file in files if unpacked_name(file).suffix.lower() in EXTENSIONS]
            if not tables or self._kind == "folders":
                return self._class_files(key, where, files)
            files = tables
        elif self._kind == "folders":
            raise UserError(f"data.format=folders: {key}={path} is no folder")
        found = []
        for file in files:
            reading = self._recorded.get(str(file)) or self._reading(split, file)
            self.read_as[str(file)] = reading
            found.append(LabelledFile(file, reading, self.asked.is_number))
        return found

    def _class_files(self, key: str, home: Path, files: list[Path]) -> list[LabelledFile]:
        if self.asked.text or self.asked.label:
            raise UserError(
                f"{key}={home}: no table in this folder, and data.column and data.label_column name columns of one"
            )
        texts, left_out = labelled_texts(key, home, files)
        words = f": {counted(texts)}"
        if left_out:
            words += f"; left out: {', '.join(left_out)}"
        self.left_out[str(home)] = words
        reading = Reading("folders", packed=Packed("none", self._encoding))
        self.read_as[str(home)] = reading
        found = []
        for path, label in texts:
            # File by file, as people compress some texts of a folder and not others.
            own = Reading("folders", packed=packed_as(path, self._encoding))
            found.append(LabelledFile(path, own, self.asked.is_number, label))
        return found

    def _reading(self, split: Split, path: Path) -> Reading:
        """Return the layout of a file that no run has recorded."""
        packed = packed_as(path, self._encoding)
        kind: Kind | None = cast("Kind | None", None if self._kind == "auto" else self._kind)
        if kind is None and unpacked_name(path).suffix.lower() in EXTENSIONS:
            kind = EXTENSIONS[unpacked_name(path).suffix.lower()]
        if kind == "jsonl":
            return keyed_reading(path, kind, packed, self.asked, first_keys(path, packed))
        if kind == "parquet":
            return keyed_reading(path, kind, packed, self.asked, _parquet_names(path))
        # Few rows of a test set do not show which column repeats, but its labels are those of train.
        known = self._labels_of_train() if split != "train" else ()
        if kind != "csv" and kind != "tsv":  # a folder's files have been taken before
            return loose_reading(path, packed, self.asked, known, sure=kind == "lines")
        # One field alone: another delimiter, or lines under the name of a table.
        first = first_row(path, kind, packed)
        if len(first) == 1 and not self.asked.by_name:
            names = Column("", "text", "text"), Column("", "label", "label")
            check_delimiter(TextFile(path, kind, names), first)
            if kind == "tsv":
                return loose_reading(path, packed, self.asked, known, sure=False)
        return table_reading(path, kind, packed, self.asked, known)

    def _labels_of_train(self) -> set[str]:
        if self._known is None:
            self._known = {row["label"] for row in self.rows("train")}
        return self._known

    def notes(self) -> list[str]:
        """Return a line for each layout in which files were read, with the files that were left out."""
        # Files that are read alike share a line: a folder may hold hundreds.
        by_words: dict[str, list[str]] = {}
        for path, reading in self.read_as.items():
            by_words.setdefault(reading.words() + self.left_out.get(path, ""), []).append(path)
        lines = []
        for words, paths in by_words.items():
            named = ", ".join(paths[:MAX_LISTED])
            if len(paths) > MAX_LISTED:
                named += f" and {len(paths) - MAX_LISTED} files more"
            lines.append(f"read {named} as {words}")
        return lines


def _parquet_names(path: Path) -> list[str]:
    """Return the columns of a parquet file; raise UserError if it is not one."""
    import pyarrow
    from pyarrow import parquet

    try:
        with readable(path):
            return list(parquet.read_schema(path).names)
    except pyarrow.ArrowException as error:
        raise UserError(f"{path}: not a parquet file that can be read ({str(error).splitlines()[0]})") from None


# Names of folders that hold no class: splits of the whole, and unlabelled texts.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "data.path"),
    **dict.fromkeys(("dev", "valid", "validation", "val"), "data.validation_path"),
    "test": "data.test_path",
}
UNLABELLED = ("unsup", "unlabeled", "unlabelled")
MAX_NAMED = 8  # labels in a line


def labelled_texts(key: str, home: Path, paths: Sequence[Path]) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the files of all classes with their labels, and a description of what was left out.

    Args:
        key: The option that names the folder.
        home: The folder.
        paths: The files below it, without hidden ones.

    Raises:
        UserError: The folders below it are not classes.
    """
    found: list[tuple[Path, str]] = []
    beside = 0
    unlabelled: Counter[str] = Counter()
    for path in paths:
        inner = path.relative_to(home).parts
        if len(inner) == 1:  # notes and lists, which are of no class
            beside += 1
        elif inner[0].lower() in UNLABELLED:
            unlabelled[inner[0]] += 1
        else:
            found.append((path, inner[0]))
    # The folders of a whole data set are splits, and would be learnt as classes.
    labels = {label for _, label in found}
    splits = sorted(label for label in labels if label.lower() in SPLIT_NAMES)
    if splits:
        raise UserError(
            f"{key}={home}: its folders {', '.join(splits)} are splits, not labels; type "
            + " ".join(f"{SPLIT_NAMES[name.lower()]}={home / name}" for name in reversed(splits))
        )
    if len(labels) < 2:
        raise UserError(
            f"{key}={home}: neither tables (jsonl, csv, tsv, parquet), nor a folder of texts for each label, of which "
            f"there must be two ({len(labels)} found)"
        )
    left_out = [f"{count:,} unlabelled texts in {name}" for name, count in unlabelled.items()]
    if beside:
        left_out.append(f"{beside:,} file{'s' * (beside != 1)} beside the folders")
    return found, left_out


def counted(files: Sequence[tuple[Path, str]]) -> str:
    """Return the number of texts of each label in words: `12,500 in neg, 12,500 in pos`."""
    counts = Counter(label for _, label in files)
    words = [f"{count:,} in {label}" for label, count in sorted(counts.items())]
    if len(words) > MAX_NAMED:
        words = [*words[:MAX_NAMED], f"{len(words) - MAX_NAMED} labels more"]
    return ", ".join(words)
