"""Sentences with a label for each token: CoNLL files (one token per line), or jsonl with lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqtrain.data.sources.base import Row, Split
from seqtrain.data.sources.files import find, json_rows, lines
from seqtrain.data.sources.opening import PLAIN
from seqtrain.data.sources.split_files import FileSource, key_of
from seqtrain.errors import UserError, first_few

DOCUMENT_START = "-DOCSTART-"  # CoNLL 2003: a line that begins a document and is not a token
CONLLU, CONLLU_WIDTH = ".conllu", 10
FIRST_ID = re.compile(r"1(-\d+)?|0\.\d+")  # IDs of CoNLL-U that may begin a sentence
NO_TOKEN = re.compile(r"\d+[-.]\d+")  # IDs of CoNLL-U: `3-4` is a multiword token, `3.1` an empty node
JSONL = (".jsonl", ".ndjson")
EXTENSIONS = (".conll", ".conllu", ".conllx", ".bio", ".iob", ".iob2", ".txt", ".tsv", *JSONL)
COMMENT = "#"

Comments = Literal["auto", "all", "none"]
ColumnNumber = int | Literal["auto"]


class TokenFile(NamedTuple):
    """A file of labelled tokens, one row per sentence."""

    path: Path
    format: Literal["conll", "jsonl"]
    options: Conll

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """Yield the file's sentences; raise UserError for a sentence that cannot be read, and if the file has none."""
        read = _read_jsonl if self.format == "jsonl" else _read_conll
        empty = True
        for tokens, labels in read(self.path, self.options):
            empty = False
            yield {"text": " ".join(tokens), "label": " ".join(labels)}
        if empty:
            raise UserError(f"{self.path}: contains no sentences; give a file with sentences, or leave it out")


@dataclass(kw_only=True, eq=False)
class Conll(FileSource):
    """Sentences of local files; a split without its own file is cut off from train, by sentence.

    Columns are numbered from 0; negative numbers count from the last one. jsonl has the keys `tokens` and `labels`.

    Attributes:
        format: Format of the files; auto = by their extension.
        token_column: Column of tokens; auto = the first one, in CoNLL-U FORM.
        label_column: Column of labels; auto = the last one, in CoNLL-U UPOS.
        comments: auto = lines that begin with `#` before the first token of a sentence; all = every such line.
    """

    format: Literal["auto", "conll", "jsonl"] = "auto"
    token_column: ColumnNumber = "auto"
    label_column: ColumnNumber = "auto"
    comments: Comments = "auto"

    called = "conll"
    document = "a sentence"
    fields = ("text", "label")
    label_kind = "names"

    def __post_init__(self) -> None:
        """Check the options; raise UserError if tokens and labels are the same column."""
        if self.token_column == self.label_column != "auto":
            raise UserError(f"data.label_column={self.label_column}: is data.token_column too; name two columns")
        super().__post_init__()

    def files(self, split: Split) -> list[TokenFile]:
        path = self.paths[split]
        found = []
        for file in find(key_of(split), path, "txt", []):  # any extension: CoNLL files have many, or none
            # Skip other files in a folder, such as a README.
            suffix = file.path.suffix.lower()
            if file.path != Path(path).expanduser() and suffix not in EXTENSIONS:
                continue
            format = self.format
            if format == "auto":
                format = "jsonl" if suffix in JSONL else "conll"
            found.append(TokenFile(file.path, format, self))
        if not found:
            raise UserError(f"{key_of(split)}={path}: no file with one of the extensions {', '.join(EXTENSIONS)}")
        return found

    def idle(self) -> dict[str, str]:
        idle = super().idle()
        if "conll" not in self.formats:
            idle |= dict.fromkeys(("token_column", "label_column", "comments"), "jsonl has keys, not columns")
        return idle


# -- CoNLL -------------------------------------------------------------------------------------------------------


class ConllLayout(NamedTuple):
    """Layout of a CoNLL file, determined from the first line of its first sentence."""

    line: int
    has_tabs: bool  # True if tabs separate columns, and tokens may contain spaces; else any blanks do
    width: int
    is_conllu: bool
    columns: tuple[int, int]  # columns of tokens and labels
    is_guessed: bool  # True if the column of tokens was not set by the user

    @classmethod
    def of(cls, path: Path, number: int, line: str, options: Conll) -> ConllLayout:
        """Return the layout; raise UserError if the line lacks a column, or if both columns are the same."""
        fields, place = _split(line, "\t" in line), f"{path}:{number}"
        width = len(fields)
        is_conllu = path.suffix.lower() == CONLLU or (
            "\t" in line and width == CONLLU_WIDTH and bool(FIRST_ID.fullmatch(fields[0]))
        )
        columns = []
        defaults = (1, 3) if is_conllu else (0, -1)  # of CoNLL-U FORM and UPOS
        for name, default in zip(("token_column", "label_column"), defaults, strict=True):
            asked = getattr(options, name)
            column = default if asked == "auto" else asked
            if not -width <= column < width:
                raise UserError(f"data.{name}={column}: {place} has {width} columns, from 0 to {width - 1}")
            columns.append(column % width)
        if columns[0] == columns[1]:
            raise UserError(
                f"data.label_column={options.label_column}: {place} has {width} columns, so it is data.token_column "
                "too; each line must have a token and its label"
            )
        is_guessed = options.token_column == "auto"
        return cls(number, "\t" in line, width, is_conllu, (columns[0], columns[1]), is_guessed)


def _read_conll(path: Path, options: Conll) -> Iterator[tuple[list[str], list[str]]]:
    """Yield tokens and labels of each sentence of a CoNLL file."""
    layout: ConllLayout | None = None
    separated = False  # True once a line has ended a sentence
    comments = options.comments
    if comments == "auto" and path.suffix.lower() == CONLLU:  # an ID begins each token's line
        comments = "all"
    for is_gap, group in groupby(enumerate(lines(path), 1), lambda numbered: _is_gap(numbered[1])):
        block = list(group)
        if is_gap:
            separated = True
            if comments == "auto" and any(line.strip() for _, line in block):  # CoNLL-2003, which has no comments
                comments = "none"
            continue
        if comments == "all":
            block = [(number, line) for number, line in block if not line.startswith(COMMENT)]
        if layout is None:
            # A line with a tab is a token: in tweets many words begin with #.
            tokens_of = [each for each in block if comments != "auto" or each[1][:1] != COMMENT or "\t" in each[1]]
            layout = ConllLayout.of(path, *tokens_of[0], options) if tokens_of else None
        if layout is None:  # only comments
            continue
        if comments == "auto":
            block = _below_comments(path, block, layout)
        sentence = _sentence(path, block, layout)
        if sentence[0]:
            yield sentence
    # Without blank lines the file is probably not CoNLL: one sentence of all tokens would be useless for training.
    if layout is not None and not separated:
        raise UserError(f"{path}: has no blank line, so it would be one sentence; add one after each sentence")


def _is_gap(line: str) -> bool:
    return not line.strip() or line.startswith(DOCUMENT_START)


def _split(line: str, has_tabs: bool) -> list[str]:
    return line.split("\t") if has_tabs else re.split(r"[ \t]+", line.strip(" \t"))


def _below_comments(path: Path, block: list[tuple[int, str]], layout: ConllLayout) -> list[tuple[int, str]]:
    """Return a sentence's lines without the comments above it; raise UserError if a comment may be a token."""
    for place, (number, line) in enumerate(block):
        is_whole = len(_split(line, layout.has_tabs)) == layout.width > 1
        if not line.startswith(COMMENT) or (is_whole and layout.has_tabs):
            return block[place:]
        if is_whole:
            raise UserError(
                f"{path}:{number}: may be a comment, or the token {line.split()[0]}; set data.comments=none if the "
                "files have no comments, or data.comments=all if every line that begins with # is a comment"
            )
    return []


def _sentence(path: Path, block: list[tuple[int, str]], layout: ConllLayout) -> tuple[list[str], list[str]]:
    """Return the tokens and labels of the lines of a sentence."""
    tokens, labels = [], []
    for number, line in block:
        place, fields = f"{path}:{number}", _split(line, layout.has_tabs)
        if len(fields) != layout.width:
            raise UserError(f"{place}: {len(fields)} columns in this line, {layout.width} in line {layout.line}")
        if layout.is_conllu and NO_TOKEN.fullmatch(fields[0]):  # its words follow, each with its label
            continue
        tokens.append(_checked(place, "token", fields[layout.columns[0]]))
        labels.append(_checked(place, "label", fields[layout.columns[1]]))
    is_counted = tokens == [str(number + 1) for number in range(len(tokens))]
    if layout.line in dict(block) and layout.is_guessed and is_counted and len(tokens) > 1:
        raise UserError(
            f"data.token_column: {path}:{layout.line}: the first column counts from 1 to {len(tokens)}; set "
            "data.token_column=1 if the tokens follow it, or data.token_column=0 if these are tokens"
        )
    return tokens, labels


def _checked(place: str, what: str, value: str) -> str:
    """Return a token or a label; raise UserError if it is empty or contains white space."""
    if value.split() != [value]:
        raise UserError(f"{place}: the {what} {value!r} is empty or contains white space; write another one, such as _")
    return value


# -- jsonl -------------------------------------------------------------------------------------------------------


def _read_jsonl(path: Path, options: Conll) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the sentences of a jsonl file: each line has a list of tokens and a list of as many labels."""
    for place, row in json_rows(path, PLAIN, '"tokens": [...], "labels": [...]'):
        tokens, labels = _list_of(place, row, "tokens"), _list_of(place, row, "labels")
        # Truncating or padding the lists would shift labels.
        if len(tokens) != len(labels):
            raise UserError(f"{place}: {len(labels)} labels for {len(tokens)} tokens; give one label per token")
        if tokens:  # an empty sentence has nothing to tag
            yield tokens, labels


def _list_of(place: str, row: dict[str, Any], key: str) -> list[str]:
    """Return the list of strings of a key; labels may be integers."""
    values = row.get(key)
    if not isinstance(values, list) or any(type(value) not in (str, int) for value in values):
        raise UserError(f"{place}: {key} is not a list of strings; the row has keys {first_few(row)}")
    return [_checked(place, key.removesuffix("s"), str(value)) for value in values]
