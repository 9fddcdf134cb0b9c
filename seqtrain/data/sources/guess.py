"""Detection of a labelled file's layout from its content; ambiguous files raise UserError."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqtrain.data.sources.columns import Column, missing
from seqtrain.data.sources.files import check_is_text, split_table
from seqtrain.data.sources.opening import PLAIN, Packed, readable
from seqtrain.data.sources.profile import Profile, is_number, label_places, profiles, text_places
from seqtrain.errors import UserError, first_few

Kind = Literal["jsonl", "csv", "tsv", "parquet", "lines", "folders"]
Place = str | int
"""A column: its name, or its number from 1 in a file without a header."""


@dataclass(frozen=True)
class FileLayout:
    """Layout of one file, detected or set by the user, or of one folder with a subfolder for each class."""

    kind: Kind
    text: Place = 2
    label: Place = 1
    header: bool = True  # of csv, tsv and lines: True if the first row names the columns
    quoted: bool = False  # of tsv: True if `"` surrounds values, as in csv
    packed: Packed = PLAIN
    num_labels: int | None = None  # number of different labels, if the whole file was examined

    def words(self) -> str:
        """Return a description such as `tsv without a header: text in column 2, label in column 1 (2 labels)`."""
        words = {
            "lines": "lines of a label and a text",
            "folders": "a folder of texts for each label",
        }.get(self.kind, self.kind)
        if self.kind in ("csv", "tsv"):
            words += " with a header" if self.header else " without a header"
        elif self.kind == "lines" and self.header:
            words += " below a header"
        if self.quoted and self.kind == "tsv":
            words += ", values in quotes"
        if self.kind not in ("lines", "folders"):
            words += f": text in column {self.text}, label in column {self.label}"
        if self.num_labels is not None:
            words += f" ({self.num_labels} label{'s' * (self.num_labels != 1)})"
        notes = []
        if self.packed.packing != "none":
            notes.append(f"unpacked by {self.packed.packing}")
        if self.packed.encoding != "utf-8":
            notes.append(f"as {self.packed.encoding}")
        return ", ".join([words, *notes])


MAX_SAMPLE = 1 << 26  # characters at the beginning of a file that are examined
# Usual names of columns; if a table has several of these, the user must choose one.
NAMES = {
    "text": (
        *("text", "sentence", "review", "content", "body", "comment", "tweet", "message", "question", "utterance"),
        *("phrase", "document", "title", "headline", "sms"),
    ),
    "label": (
        *("label", "labels", "class", "category", "sentiment", "target", "polarity", "intent", "tag", "tags"),
        *("topic", "rating", "stars", "score", "y"),
    ),
}
OPTIONS = {"text": "data.column", "label": "data.label_column"}
FASTTEXT = "__label__"
QUOTED = re.compile(r'".*"', re.S)


@dataclass(frozen=True)
class Asked:
    """Options that the user has set for the files; empty and None mean that the value is detected."""

    text: tuple[Place, ...] = ()  # of several names, the first that occurs in a file is used
    label: tuple[Place, ...] = ()
    header: bool | None = None
    is_number: bool = False  # True if labels are numbers

    @property
    def by_name(self) -> bool:
        """True if a column was set by name, which requires a header."""
        return any(isinstance(place, str) for place in (*self.text, *self.label))


def table_reading(path: Path, kind: Kind, packed: Packed, asked: Asked, known: Collection[str]) -> FileLayout:
    """Return the layout of a csv or tsv.

    Args:
        path: The file.
        kind: csv or tsv.
        packed: Compression and encoding.
        asked: Options that the user has set.
        known: Labels of train; empty if this is train.
    """
    text, is_whole = _sample(path, packed)
    quoted = kind == "csv" or _is_quoted(text)
    rows = [row for row in _parsed(path, text, kind, quoted, is_whole) if row]
    if not rows:
        raise UserError(f"{path}: is empty; give a file with rows, or leave it out")
    # Without the first row, which may be a header: its names are not values.
    columns = profiles(rows[1:], len(rows[0]))
    header = asked.header
    if header is None:
        header = asked.by_name or _has_header(path, rows[0], columns, asked, known)
    if header:
        text_place, label_place = _named(path, rows[0], columns, asked, known)
        at = rows[0].index(label_place) if label_place in rows[0] else None
    else:
        columns = profiles(rows, len(rows[0]))
        text_number, label_number = _numbered(path, columns, asked, known)
        text_place, label_place, at = text_number, label_number, label_number - 1
    num_labels = None
    if is_whole and at is not None and not asked.is_number and not columns[at].overflowed:
        num_labels = len(columns[at].counts) or None
    return FileLayout(kind, text_place, label_place, header, quoted, packed, num_labels)


def loose_reading(path: Path, packed: Packed, asked: Asked, known: Collection[str], *, sure: bool) -> FileLayout:
    """Return the layout of a file of any extension: a table with tabs, JSON lines, or lines of a label and a text.

    Args:
        path: The file.
        packed: Compression and encoding.
        asked: Options that the user has set.
        known: Labels of train; empty if this is train.
        sure: True if the user has set the format `lines`; the labels are then not checked.
    """
    text, is_whole = _sample(path, packed)
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise UserError(f"{path}: is empty; give a file with text, or leave it out")
    if not sure and all("\t" in line for line in lines):
        return table_reading(path, "tsv", packed, asked, known)
    if not sure and lines[0].startswith("{") and _is_json(lines[0]):
        return keyed_reading(path, "jsonl", packed, asked, first_keys(path, packed))
    if asked.by_name or asked.text or asked.label:
        raise UserError(f"{path}: has no columns; data.column and data.label_column need jsonl, csv, tsv or parquet")
    words = lines[0].split()
    has_names = len(words) == 2 and words[0].lower() in NAMES["label"] and words[1].lower() in NAMES["text"]
    labels = Profile()
    for line in lines[1:]:
        labels.add(line.split(None, 1)[0])
    # A header is two names of columns, of which the first is not a label in another line.
    header = asked.header
    if header is None:
        header = has_names and words[0] not in labels.counts
    if not header:
        labels.add(words[0])
    is_fasttext = all(line.startswith(FASTTEXT) for line in lines)
    if not sure and not is_fasttext and not label_places([labels], known, asked.is_number):
        raise UserError(
            f"{path}: no labels found: its {labels.rows:,} lines begin with {len(labels.counts):,} different words; "
            "give lines of a label and a text (data.format=lines if these are), or jsonl, csv, tsv or parquet"
        )
    return FileLayout("lines", 2, 1, header, False, packed, len(labels.counts) if is_whole else None)


def keyed_reading(path: Path, kind: Kind, packed: Packed, asked: Asked, names: Sequence[str]) -> FileLayout:
    """Return the layout of a jsonl or parquet file, whose columns always have names.

    Args:
        path: The file.
        kind: jsonl or parquet.
        packed: Compression and encoding.
        asked: Options that the user has set.
        names: Names of the file's columns.
    """
    if not asked.by_name and (asked.text or asked.label):
        raise UserError(f"{path}: columns of {kind} have names; set data.column and data.label_column to them")
    text, label = _named(path, names, [], asked, ())
    return FileLayout(kind, text, label, True, False, packed)


def _has_header(
    path: Path, first: Sequence[str], columns: Sequence[Profile], asked: Asked, known: Collection[str]
) -> bool:
    """Return True if the first row names the columns; raise UserError if that cannot be decided."""
    has_text, has_label = (any(_is_known(cell, field) for cell in first) for field in ("text", "label"))
    # The first row occurs again below: files with headers were concatenated, which the reader reports.
    if has_text and has_label and all(column.counts[cell] for cell, column in zip(first, columns, strict=True)):
        return True
    for field, places in (("text", asked.text), ("label", asked.label)):
        for place in places:
            _checked(path, place, field, len(first))
    at = [int(place) - 1 for place in asked.label] or label_places(columns, known, asked.is_number)
    if len(at) == 1 and at[0] < len(first):
        cell, values = first[at[0]], columns[at[0]]
        if cell in known or values.counts[cell]:  # a label that other rows have is not a column's name
            return False
        if values.is_numeric:
            if not is_number(cell):
                return True
            if asked.is_number:
                return False
        elif has_text or (has_label and _is_known(cell, "label")):
            return True
    elif has_text and has_label:
        return True
    shown = ", ".join(f"{cell[:40]!r}" for cell in first)
    raise UserError(
        f"{path}: cannot determine if the first row ({shown}) is a header; set data.header=true or data.header=false, "
        "or name the columns with data.column and data.label_column"
    )


def _named(
    path: Path, names: Sequence[str], columns: Sequence[Profile], asked: Asked, known: Collection[str]
) -> tuple[str, str]:
    """Return the names of the columns of text and label."""
    found = {"text": _asked_name(path, names, "text", asked.text), "label": None}
    found["label"] = _asked_name(path, names, "label", asked.label)
    for field, other in (("label", "text"), ("text", "label")):
        if found[field] is None:
            found[field] = _known_name(path, [name for name in names if name != found[other]], field)
    # With two columns, one determines the other; if both names are unknown, the values may decide.
    if len(names) == 2 and found["text"] is None and found["label"] is None:
        places = label_places(columns, known, asked.is_number)
        if len(places) == 1:
            found["label"] = names[places[0]]
    for field, other in (("label", "text"), ("text", "label")):
        if found[field] is None and len(names) == 2 and found[other] in names:
            found[field] = names[1 - list(names).index(str(found[other]))]
    faults = []
    for field, name in found.items():
        if name is None:
            faults.append(f"{OPTIONS[field]}: {path} has columns {first_few(names)}; set it to that of the {field}")
    if faults:
        raise UserError(*faults)
    return str(found["text"]), str(found["label"])


def _asked_name(path: Path, names: Sequence[str], field: str, asked: Sequence[Place]) -> str | None:
    """Return the column's name that the user has set, or None; of several names, the first that the file has."""
    for place in asked:
        if isinstance(place, int):
            return names[_checked(path, place, field, len(names)) - 1]
        if place in names:
            return place
    if not asked:
        return None
    raise UserError(missing(str(path), Column(OPTIONS[field], ",".join(map(str, asked)), field), names))


def _known_name(path: Path, names: Sequence[str], field: str) -> str | None:
    """Return the column with a usual name for this field, or None; raise UserError if there are several."""
    if field in names:  # the names that seqtrain uses, `text` and `label`, take precedence
        return field
    found = [name for name in names if _is_known(name, field)]
    if len(found) > 1:
        raise UserError(
            f"{OPTIONS[field]}: {path} has {len(found)} columns that may be the {field}: {first_few(found)}; choose one"
        )
    return found[0] if found else None


def _numbered(path: Path, columns: Sequence[Profile], asked: Asked, known: Collection[str]) -> tuple[int, int]:
    """Return the numbers, from 1, of the columns of text and label in a table without names."""
    width = len(columns)
    labels = label_places(columns, known, asked.is_number)
    if asked.label:
        labels = [_checked(path, asked.label[0], "label", width) - 1]
    elif asked.text:
        labels = [place for place in labels if place + 1 != asked.text[0]]
    if len(labels) != 1:
        raise UserError(
            f"data.label_column: {path} has {width} columns without names, and {len(labels)} of them look like "
            "labels; give its number, counted from 1"
        )
    # Of the columns without the labels, the one that looks like text; several candidates are an error.
    texts = text_places(columns, labels[0])
    if asked.text:
        texts = [_checked(path, asked.text[0], "text", width) - 1]
    if len(texts) != 1:
        raise UserError(
            f"data.column: {path} has {width} columns without names, and {len(texts)} of them look like text; "
            "give its number, counted from 1"
        )
    if texts == labels:
        raise UserError(f"data.label_column={labels[0] + 1}: is data.column too; name two columns")
    return texts[0] + 1, labels[0] + 1


def _checked(path: Path, place: Place, field: str, width: int) -> int:
    if isinstance(place, str):
        raise UserError(f"{OPTIONS[field]}={place}: {path} has no header; give the column's number, counted from 1")
    if not 1 <= place <= width:
        raise UserError(f"{OPTIONS[field]}={place}: {path} has {width} columns, counted from 1")
    return place


def _is_known(cell: str, field: str) -> bool:
    return cell.strip().lower() in NAMES[field]


def _sample(path: Path, packed: Packed) -> tuple[str, bool]:
    """Return the text that is examined, and True if it is the whole file."""
    check_is_text(path, packed)
    with readable(path, packed), packed.open_text(path, newline="") as file:
        text = file.read(MAX_SAMPLE)
        is_whole = not file.read(1)
    if not is_whole:
        text = text[: text.rfind("\n") + 1] or text  # without the incomplete last row
    return text, is_whole


def _parsed(path: Path, text: str, kind: Kind, quoted: bool, is_whole: bool) -> list[list[str]]:
    """Return the rows of a sample."""
    rows: list[list[str]] = []
    try:
        rows.extend(split_table(io.StringIO(text, newline=""), kind, quoted))
    except csv.Error as error:
        if is_whole or not rows:  # a sample may end within quotes
            raise UserError(f"{path}: not {kind} ({error})") from None
    return rows


def _is_quoted(text: str) -> bool:
    """Return True if values of a tsv are quoted as in csv; quotes may also be part of a sentence."""
    if '"' not in text:
        return False
    plain = [row for row in split_table(io.StringIO(text, newline=""), "tsv", False) if row]
    try:
        quoted = [row for row in split_table(io.StringIO(text, newline=""), "tsv", True) if row]
    except csv.Error:
        return False
    if len(set(map(len, quoted))) == 1 and len(set(map(len, plain))) > 1:  # a tab or a line end within quotes
        return True
    # A quoted value with doubled quotes inside, which text does not contain; or a column with only quoted values.
    if any(QUOTED.fullmatch(value) and '""' in value[1:-1] for row in plain for value in row):
        return True
    return len(plain) > 2 and any(all(map(QUOTED.fullmatch, column)) for column in zip(*plain[1:], strict=False))


def first_keys(path: Path, packed: Packed) -> list[str]:
    """Return the keys of the first object of JSON lines; empty if the line is not an object: the reader reports it."""
    with readable(path, packed), packed.open_text(path) as file:
        for line in file:
            if line.strip():
                return list(json.loads(line)) if _is_json(line) else []
    return []


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
