"""Sentences with a label for each token: CoNLL files (a token a line, blank lines between), or jsonl of lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqtrain.data.sources.base import Cut, Row, Source, Split, idle_cut
from seqtrain.data.sources.files import find, lines
from seqtrain.data.sources.split_files import SplitFiles, key_of
from seqtrain.errors import UserError, did_you_mean, first_few

DOCUMENT_START = "-DOCSTART-"  # CoNLL 2003: a line that begins a document, and is no token
BLANKS = re.compile(r"[ \t]+")
CONLLU, CONLLU_WIDTH = ".conllu", 10
FIRST_ID = re.compile(r"1(-\d+)?|0\.\d+")  # IDs of CoNLL-U that may begin a sentence
NO_TOKEN = re.compile(r"\d+[-.]\d+")  # IDs of CoNLL-U: `3-4` is two words written as one, `3.1` a word not written
COLUMNS = {"CoNLL": (0, -1), "CoNLL-U": (1, 3)}  # tokens and labels; of CoNLL-U FORM and UPOS
JSONL = (".jsonl", ".ndjson")
EXTENSIONS = (".conll", ".conllu", ".conllx", ".bio", ".iob", ".iob2", ".txt", ".tsv", *JSONL)
COMMENT = "#"

Comments = Literal["auto", "all", "none"]
ColumnNumber = int | Literal["auto"]


class Sentence(NamedTuple):
    """Tokens with their labels, and the line of the file on which each of them stands."""

    tokens: list[str]
    labels: list[str]
    lines: list[int]

    def row(self) -> Row:
        """Return the row that a task reads: words and labels, each joined by spaces."""
        return {"text": " ".join(self.tokens), "label": " ".join(self.labels)}


class Reading(NamedTuple):
    """Options of reading: the columns or keys that are read, and which lines are comments."""

    format: Literal["auto", "conll", "jsonl"]
    token_column: ColumnNumber
    label_column: ColumnNumber
    comments: Comments
    tokens_key: str
    labels_key: str


class TokenFile(NamedTuple):
    """A file of labelled tokens; `SplitFiles` checks and reads it as any file of rows."""

    path: Path
    format: Literal["conll", "jsonl"]
    reading: Reading

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """Return the file's rows; raise UserError for a row that cannot be read, when it is reached."""
        return (sentence.row() for sentence in self.sentences())

    def sentences(self) -> Iterator[Sentence]:
        """Yield the file's sentences; raise UserError for a sentence that cannot be read, and if the file has none."""
        read = _read_jsonl if self.format == "jsonl" else _read_conll
        empty = True
        for sentence in read(self.path, self.reading):
            if empty and self.format == "conll" and self.reading.token_column == "auto":
                _check_no_numbers(self.path, sentence)
            empty = False
            yield sentence
        if empty:
            raise UserError(f"{self.path}: holds no sentences; give a file with some, or leave it out")


class TokenFiles(SplitFiles):
    """The files of each split."""

    def __init__(self, paths: dict[Split, str | None], reading: Reading) -> None:
        super().__init__(paths, "auto", [])
        self.reading = reading

    def _files(self, split: Split) -> list[TokenFile]:
        path = self.paths[split]
        found = []
        for file in find(key_of(split), path, "txt", []):  # any extension: CoNLL files have many, or none
            # Other files of a folder, such as a README, are skipped.
            if file.path != Path(path).expanduser() and file.path.suffix.lower() not in EXTENSIONS:
                continue
            found.append(TokenFile(file.path, self._format(file.path), self.reading))
        if not found:
            raise UserError(f"{key_of(split)}={path}: no file with one of the extensions {', '.join(EXTENSIONS)}")
        return found

    def _format(self, path: Path) -> Literal["conll", "jsonl"]:
        if self.reading.format != "auto":
            return self.reading.format
        return "jsonl" if path.suffix.lower() in JSONL else "conll"

    def sentences(self, split: Split) -> Iterator[tuple[Path, Sentence]]:
        """Yield each sentence of a split that has a path, with its file."""
        for file in self._files(split):
            for sentence in file.sentences():
                yield file.path, sentence


class Conll(Source):
    """Sentences of local files; a split without a file of its own is cut off from train's, by sentence."""

    document = "a sentence"
    fields = ("text", "label")
    label_kind = "names"

    def __init__(
        self,
        *,
        path: str,
        validation_path: str | None = None,
        test_path: str | None = None,
        format: Literal["auto", "conll", "jsonl"] = "auto",
        token_column: ColumnNumber = "auto",
        label_column: ColumnNumber = "auto",
        comments: Comments = "auto",
        tokens_key: str = "tokens",
        labels_key: str = "labels",
        validation_fraction: float = 0.1,
        test_fraction: float = 0.0,
    ) -> None:
        """Set paths and columns. Columns are numbered from 0, or below 0 from the last one; keys are for jsonl.

        Args:
            path: Files of train: a file, a glob or a folder.
            validation_path: Files of validation; None: validation is cut off from train.
            test_path: Files of test; None: test is cut off from train.
            format: Format of the files; auto = by their extension.
            token_column: Column of tokens; auto = the first one, in CoNLL-U FORM.
            label_column: Column of labels; auto = the last one, in CoNLL-U UPOS.
            comments: auto = lines that begin with `#` before the first token of a sentence; all = every such line.
            tokens_key: Key of the list of tokens in jsonl.
            labels_key: Key of the list of labels in jsonl.
            validation_fraction: Fraction of the sentences.
            test_fraction: Fraction of the sentences.
        """
        if tokens_key == labels_key:
            raise UserError(f"data.labels_key={labels_key}: is data.tokens_key too; name two keys")
        if token_column == label_column != "auto":
            raise UserError(f"data.label_column={label_column}: is data.token_column too; name two columns")
        reading = Reading(format, token_column, label_column, comments, tokens_key, labels_key)
        self._files = TokenFiles({"train": path, "validation": validation_path, "test": test_path}, reading)
        self._cut = Cut(by="row", validation=validation_fraction, test=test_fraction, given=self._files.paths)

    def check(self) -> None:
        self._files.check(self._cut)

    def documents(self, split: Split) -> Iterator[str]:
        return (row["text"] for row in self.rows(split))

    def rows(self, split: Split) -> Iterator[Row]:
        return (sentence.row() for _, sentence in self._sentences(split))

    def _sentences(self, split: Split) -> Iterator[tuple[Path, Sentence]]:
        if split in self._files.paths and split != "train":  # train may have to give up a part
            return self._files.sentences(split)
        return self._cut.rows(partial(self._files.sentences, "train"), split)

    def place(self, split: Split, number: int, label: str | None = None) -> str:
        for count, (path, sentence) in enumerate(self._sentences(split), 1):
            if count == number:
                at = sentence.labels.index(label) if label in sentence.labels else 0
                return f"{path}:{sentence.lines[at]}"
        return ""

    def has(self, split: Split) -> bool:
        return self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        return {"source": "conll", "paths": self._files.paths, "files": self._files.counts()}

    def idle(self) -> dict[str, str]:
        idle = idle_cut(self._files.keys)
        kinds = self._files.formats()
        if "conll" not in kinds:
            idle |= dict.fromkeys(("token_column", "label_column", "comments"), "jsonl has keys, not columns")
        if "jsonl" not in kinds:
            idle |= dict.fromkeys(("tokens_key", "labels_key"), "CoNLL files have columns, not keys")
        return idle


# -- CoNLL -------------------------------------------------------------------------------------------------------


def _read_conll(path: Path, reading: Reading) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL file."""
    sentence = Sentence([], [], [])
    separated = False  # whether any line has ended a sentence
    comments = reading.comments
    if comments == "auto" and path.suffix.lower() == CONLLU:  # an ID begins each token's line
        comments = "all"
    split: Callable[[str], list[str]] | None = None
    first, width = 0, 0  # the line that says how many columns there are, and how many
    is_conllu, columns = False, (0, 0)
    above: tuple[str, str] | None = None  # the last comment above the first token
    for number, line in enumerate(lines(path), 1):
        if not line.strip() or line.startswith(DOCUMENT_START):
            separated = True
            if line.strip() and comments == "auto":  # the layout of CoNLL-2003, which has no comments
                comments = "none"
            # Several blank lines, or one at the top, end nothing.
            if sentence.tokens:
                yield sentence
            sentence = Sentence([], [], [])
            continue
        place = f"{path}:{number}"
        if _is_comment(place, line, comments, bool(sentence.tokens), width, split):
            above = (place, line) if split is None else above
            continue
        if split is None:  # as the first line has it: tabs, since a token may hold spaces, or any blanks
            split = partial(str.split, sep="\t") if "\t" in line else _split_at_blanks
            first, width = number, len(split(line))
            if above is not None and comments == "auto":  # seen again, now that the width is known
                _is_comment(*above, comments, False, width, split)
            is_conllu = _is_conllu(path, line)
            columns = _columns(place, reading, width, is_conllu)
        fields = split(line)
        if len(fields) != width:
            raise UserError(f"{place}: {len(fields)} columns in this line, {width} in line {first}")
        if is_conllu and NO_TOKEN.fullmatch(fields[0]):  # its words stand in the lines below, each with its label
            continue
        sentence.tokens.append(_checked(place, "token", fields[columns[0]]))
        sentence.labels.append(_checked(place, "label", fields[columns[1]]))
        sentence.lines.append(number)
    # A file without blank lines is of another kind: one sentence of all its tokens would train on nothing.
    if sentence.tokens and not separated:
        raise UserError(
            f"{path}: {len(sentence.tokens):,} tokens and no blank line, so it would be one sentence; "
            "put a blank line behind each sentence"
        )
    if sentence.tokens:
        yield sentence


def _is_conllu(path: Path, line: str) -> bool:
    """Return True if a file is CoNLL-U: by its name, or by ten columns whose first is an ID in the first line."""
    fields = line.split("\t")
    return path.suffix.lower() == CONLLU or (len(fields) == CONLLU_WIDTH and bool(FIRST_ID.fullmatch(fields[0])))


def _check_no_numbers(path: Path, sentence: Sentence) -> None:
    """Raise UserError if the tokens of a sentence are 1, 2, ...: the first column holds their numbers."""
    count = len(sentence.tokens)
    if count > 1 and sentence.tokens == [str(number) for number in range(1, count + 1)]:
        raise UserError(
            f"data.token_column: {path}:{sentence.lines[0]}: the first column counts from 1 to {count}; "
            "set data.token_column=1 if the tokens follow it, or data.token_column=0 if these are tokens"
        )


def _split_at_blanks(line: str) -> list[str]:
    return BLANKS.split(line.strip(" \t"))


def _is_comment(
    place: str,
    line: str,
    comments: Comments,
    inside: bool,
    width: int,
    split: Callable[[str], list[str]] | None,
) -> bool:
    """Return True if a line is a comment, not a token `#`; raise UserError if that cannot be decided."""
    if comments == "none" or not line.startswith(COMMENT):
        return False
    if comments == "all":
        return True
    # Comments stand before a sentence, and tokens that begin with the sign anywhere: tweets are full of them.
    if inside or (split is None and "\t" in line) or (split is not None and len(split(line)) == width > 1):
        if not inside and split is _split_at_blanks:
            raise UserError(
                f"{place}: may be a comment, or the token {line.split()[0]}; set data.comments=none where the files "
                "have no comments, or data.comments=all where every line that begins with # is one"
            )
        return False
    return True


def _columns(place: str, reading: Reading, width: int, is_conllu: bool) -> tuple[int, int]:
    """Return the columns of tokens and labels; raise UserError if a line lacks one, or if both are the same."""
    found = []
    for name, default in zip(
        ("token_column", "label_column"), COLUMNS["CoNLL-U" if is_conllu else "CoNLL"], strict=True
    ):
        asked = getattr(reading, name)
        column = default if asked == "auto" else asked
        if not -width <= column < width:
            raise UserError(f"data.{name}={column}: {place} has {width} columns, from 0 to {width - 1}")
        found.append(column % width)
    if found[0] == found[1]:
        raise UserError(
            f"data.label_column={reading.label_column}: {place} has {width} columns, so it is data.token_column too; "
            "each line must have a token and its label"
        )
    return found[0], found[1]


def _checked(place: str, what: str, value: str) -> str:
    """Return a token or a label; raise UserError if it is empty or holds white space."""
    if value.split() == [value]:
        return value
    if not value.strip():
        raise UserError(f"{place}: the {what} is empty; give it one, or remove the line")
    raise UserError(f"{place}: the {what} {value!r} holds white space; write another sign there, such as _")


# -- jsonl -------------------------------------------------------------------------------------------------------


def _read_jsonl(path: Path, reading: Reading) -> Iterator[Sentence]:
    """Yield the sentences of a jsonl file: each line has a list of tokens and a list of as many labels."""
    for number, line in enumerate(lines(path), 1):
        if not line.strip():  # a blank line, as some programs leave at the end
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise UserError(f'{place}: not a JSON object; each line must be like {{"tokens": [...], "labels": [...]}}')
        tokens = _list_of(place, row, "tokens_key", reading.tokens_key)
        labels = _list_of(place, row, "labels_key", reading.labels_key)
        # Padded or cut lists would shift every label behind the gap.
        if len(tokens) != len(labels):
            raise UserError(f"{place}: {len(labels)} labels for {len(tokens)} tokens; give each token one")
        if tokens:  # an empty sentence has nothing to tag
            yield Sentence(tokens, labels, [number] * len(tokens))


def _list_of(place: str, row: dict[str, Any], option: str, key: str) -> list[str]:
    """Return the list of strings of a key; labels may be integers."""
    if key not in row:
        raise UserError(f"data.{option}={key}: {place} has keys {first_few(row)}{did_you_mean(key, row)}")
    values = row[key]
    if not isinstance(values, list):
        raise UserError(f"{place}: {key} holds {type(values).__name__}, not a list")
    texts = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UserError(f"{place}: {key} holds {type(value).__name__}, not text")
        texts.append(_checked(place, option.removesuffix("s_key"), str(value)))
    return texts
