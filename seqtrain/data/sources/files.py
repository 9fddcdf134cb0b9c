"""Local files of text: finding them, and reading documents and rows out of txt, jsonl, csv, tsv and parquet.

A txt file is one document, a row of the others is one. Text is strict UTF-8; a byte order mark is dropped, and line
ends are kept as they are, so that the bytes counted are the bytes stored. csv has the usual quoting, tsv has none.
"""

from __future__ import annotations

import codecs
import csv
import glob
import itertools
import json
import mmap
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqtrain.data.sources.base import Row
from seqtrain.data.sources.columns import Column, check_kind, require, value_of
from seqtrain.data.sources.unreadable import absent, readable, sniff
from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import expanded
from seqtrain.files.checked import LINK, stays_within

Format = Literal["txt", "jsonl", "csv", "tsv", "parquet"]
EXTENSIONS: dict[str, Format] = {
    ".txt": "txt",
    ".text": "txt",
    ".tokens": "txt",
    ".raw": "txt",
    ".md": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


class TextFile(NamedTuple):
    """A file and how to read it."""

    path: Path
    format: Format
    columns: Sequence[Column]  # at least one; a txt file has exactly one, without a name

    def documents(self, limit: int | None = None) -> Iterator[str]:
        """The file's documents, of its first column, as `rows` reads them."""
        field = self.columns[0].field
        return (row[field] for row in self.rows(limit))

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """The file's rows; with `limit`, a txt file gives about its first `limit` bytes only.

        Raises UserError for what cannot be read, when it is reached.
        """
        empty = True
        if self.format != "parquet" and (kind := sniff(self.path)):
            raise UserError(f"{self.path}: {kind}")
        with readable(self.path):
            for row in _read_txt(self, limit) if self.format == "txt" else ROW_READERS[self.format](self):
                empty = False
                yield row
        if empty:
            raise UserError(f"{self.path}: holds no rows; give a file with text, or leave it out")


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file without their ends: only a line feed, or carriage return and line feed, ends one.

    Raises UserError for what cannot be read, when it is reached.
    """
    if kind := sniff(path):
        raise UserError(f"{path}: {kind}")
    with readable(path), open(path, "rb") as file:
        for number, line in enumerate(file):
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
            yield text if number else text.removeprefix("\ufeff")


def count_lines(path: Path) -> int:
    """How many `lines` a file has."""
    count, last = 0, b"\n"
    with readable(path), open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def find(key: str, path: str, format: Format | Literal["auto"], columns: Sequence[Column]) -> list[TextFile]:
    """The files behind a path, a glob or a folder, ordered by path; `key` is the option that names them.

    Of a folder: every file below it with a known extension (with any, where `format` is given), hidden ones left out.
    """
    where = expanded(path)
    try:
        paths = _paths(key, path, where, format)
    except RecursionError:
        raise UserError(
            f"{key}={path}: folders in folders, too deep to be looked through; name the folder of the files"
        ) from None
    home = where if where.is_dir() else _fixed(where)
    outside = [] if paths == [where] else [p for p in paths if not stays_within(p, home)]
    if outside:
        raise UserError(f"{key}={path}: {outside[0]} is {LINK}, or give that file itself")
    return [TextFile(p, _format_of(key, p, format), columns) for p in sorted(paths, key=lambda p: p.as_posix())]


def _paths(key: str, path: str, where: Path, format: Format | Literal["auto"]) -> list[Path]:
    """The files, in any order; UserError where there is none."""
    if where.is_file():
        paths = [where]
    elif where.is_dir():
        paths = [p for p in where.rglob("*") if _wanted(p.relative_to(where), format) and p.is_file()]
        if not paths:
            known = (
                f"{', '.join(EXTENSIONS)}; set data.format for another extension" if format == "auto" else "any name"
            )
            raise Unavailable(f"{key}={path}: no file in this folder (looked for {known})")
    elif glob.has_magic(path):
        paths = [Path(p) for p in glob.glob(str(where), recursive=True) if Path(p).is_file()]
        if not paths:
            raise Unavailable(f"{key}={path}: no file matches; put the pattern in quotes, and look at the folder")
    else:
        raise Unavailable(f"{key}={path}: {absent(where, 'file or folder')}")
    return paths


def _fixed(pattern: Path) -> Path:
    """The folder that a pattern begins with, before anything in it stands for several names."""
    parts = itertools.takewhile(lambda part: not glob.has_magic(part), pattern.parts)
    return Path(*parts)


def _wanted(path: Path, format: str) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and (format != "auto" or path.suffix.lower() in EXTENSIONS)


def _format_of(key: str, path: Path, format: Format | Literal["auto"]) -> Format:
    if format != "auto":
        return format
    if path.suffix.lower() not in EXTENSIONS:
        raise UserError(
            f"{key}={path}: unknown extension {path.suffix or '(none)'}; set data.format to txt, jsonl, csv, tsv or "
            f"parquet, or use one of {', '.join(EXTENSIONS)}"
        )
    return EXTENSIONS[path.suffix.lower()]


def _read_txt(file: TextFile, limit: int | None) -> Iterator[Row]:
    """Decodes out of a memory map, so that the text is held once."""
    if len(file.columns) > 1:
        names = " and ".join(column.option for column in file.columns)
        raise UserError(f"{file.path}: a txt file has no columns; {names} need jsonl, csv, tsv or parquet")
    with open(file.path, "rb") as handle:
        if handle.read(len(codecs.BOM_UTF8) + 1) in (b"", codecs.BOM_UTF8):
            raise UserError(f"{file.path}: is empty; give a file with text, or leave it out")
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as raw, memoryview(raw) as view:
            begin = len(codecs.BOM_UTF8) if raw[:3] == codecs.BOM_UTF8 else 0
            end = len(raw) if limit is None else min(begin + limit, len(raw))
            with view[begin:end] as part:
                text = codecs.utf_8_decode(part, "strict", end == len(raw))[0]
    yield {file.columns[0].field: text}


def _read_jsonl(file: TextFile) -> Iterator[Row]:
    with open(file.path, encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{file.path}:{number}: not JSON ({error.msg} at column {error.colno})") from None
            except (ValueError, RecursionError):
                raise UserError(
                    f"{file.path}:{number}: JSON nested too deeply, or a number of too many digits"
                ) from None
            if not isinstance(row, dict):
                like = ", ".join(f'"{column.name}": "..."' for column in file.columns)
                raise UserError(f"{file.path}:{number}: not a JSON object; each line must be like {{{like}}}")
            place = f"{file.path}:{number}"
            require(place, file.columns, list(row))
            yield {column.field: value_of(place, column, row[column.name]) for column in file.columns}


def _read_table(file: TextFile) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)  # the default refuses long documents
    with open(file.path, encoding="utf-8-sig", newline="") as lines:
        if file.format == "csv":
            rows = csv.reader(lines, strict=True)
        else:
            rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        try:
            yield from _rows(file, rows)
        except csv.Error as error:
            raise UserError(f"{file.path}:{rows.line_num}: not {file.format} ({error})") from None


def _rows(file: TextFile, rows: Any) -> Iterator[Row]:
    header = next(rows, None)
    if header is None:
        raise UserError(f"{file.path}: is empty; give a file with a header and rows, or leave it out")
    _check_delimiter(file, header)
    require(str(file.path), file.columns, header)
    indices, empty = [header.index(column.name) for column in file.columns], True
    for row in rows:
        if not row:  # a blank line
            continue
        if len(row) != len(header):
            raise UserError(f"{file.path}:{rows.line_num}: {len(row)} fields in this row, {len(header)} in the header")
        empty = False
        place = f"{file.path}:{rows.line_num}"
        yield {column.field: value_of(place, column, row[i]) for column, i in zip(file.columns, indices, strict=True)}
    if empty:
        raise UserError(f"{file.path}: has a header but no rows; give a file with rows, or leave it out")


def _check_delimiter(file: TextFile, header: list[str]) -> None:
    """Raises UserError where the header is one field that holds all wanted names between other delimiters."""
    for delimiter, name in ((",", "a comma"), (";", "a semicolon"), ("\t", "a tab"), ("|", "a vertical bar")):
        parts = [part.strip() for part in header[0].split(delimiter)] if len(header) == 1 else []
        if len(parts) > 1 and any(column.name in parts for column in file.columns):
            raise UserError(
                f"{file.path}: the header is one field of {file.format}, {header[0]!r}, with {name} between its names; "
                "set data.format to csv (commas) or tsv (tabs), or write the file again"
            )


def _read_parquet(file: TextFile) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(file.path) as table:
            schema = table.schema_arrow
            require(str(file.path), file.columns, schema.names)
            for column in file.columns:
                check_kind(str(file.path), column, schema.field(column.name).type)
            for batch in table.iter_batches(batch_size=1024, columns=[column.name for column in file.columns]):
                for values in zip(*(batch.column(column.name) for column in file.columns), strict=True):
                    number += 1
                    place = f"{file.path}: row {number}"
                    pairs = zip(file.columns, values, strict=True)
                    yield {column.field: value_of(place, column, value.as_py()) for column, value in pairs}
    except UnicodeDecodeError:
        names = " or ".join(column.name for column in file.columns)
        raise UserError(f"{file.path}: row {number}: {names} is not UTF-8; write the file again from text") from None
    except pyarrow.ArrowException as error:
        raise UserError(f"{file.path}: not a parquet file that can be read ({str(error).splitlines()[0]})") from None


ROW_READERS = {"jsonl": _read_jsonl, "csv": _read_table, "tsv": _read_table, "parquet": _read_parquet}
