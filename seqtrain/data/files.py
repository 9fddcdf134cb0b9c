"""Local files of text: finding them, and reading documents out of txt, jsonl, csv, tsv and parquet.

A txt file is one document, a row of the others is one. Text is strict UTF-8; a byte order mark is dropped, and line
ends are kept as they are, so that the bytes counted are the bytes stored. csv has the usual quoting, tsv has none.
"""

from __future__ import annotations

import codecs
import csv
import glob
import json
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqtrain.faults import Fault, did_you_mean

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
    column: str  # of the formats that have columns

    def documents(self, limit: int | None = None) -> Iterator[str]:
        """The file's documents; with `limit`, a txt file gives about its first `limit` bytes only.

        Raises Fault for what cannot be read, when it is reached.
        """
        empty = True
        with _faults(self.path):
            for text in _read_txt(self, limit) if self.format == "txt" else ROW_READERS[self.format](self):
                empty = False
                yield text
        if empty:
            raise Fault(f"{self.path}: holds no rows; give a file with text, or leave it out")


def find(key: str, path: str, format: Format | Literal["auto"], column: str) -> list[TextFile]:
    """The files behind a path, a glob or a folder, ordered by path; `key` is the option that names them.

    Of a folder: every file below it with a known extension (with any, where `format` is given), hidden ones left out.
    """
    where = Path(path).expanduser()
    if where.is_file():
        paths = [where]
    elif where.is_dir():
        paths = [p for p in where.rglob("*") if _wanted(p.relative_to(where), format) and p.is_file()]
        if not paths:
            known = (
                f"{', '.join(EXTENSIONS)}; set data.format for another extension" if format == "auto" else "any name"
            )
            raise Fault(f"{key}={path}: no file in this folder (looked for {known})")
    elif glob.has_magic(path):
        paths = [Path(p) for p in glob.glob(str(where), recursive=True) if Path(p).is_file()]
        if not paths:
            raise Fault(f"{key}={path}: no file matches")
    else:
        raise Fault(f"{key}={path}: no such file or folder{_near(where)}")
    return [TextFile(p, _format_of(key, p, format), column) for p in sorted(paths, key=lambda p: p.as_posix())]


def _wanted(path: Path, format: str) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and (format != "auto" or path.suffix.lower() in EXTENSIONS)


def _near(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (there is no folder {path.parent})"
    return did_you_mean(path.name, [p.name for p in path.parent.iterdir()])


def _format_of(key: str, path: Path, format: Format | Literal["auto"]) -> Format:
    if format != "auto":
        return format
    if path.suffix.lower() not in EXTENSIONS:
        raise Fault(
            f"{key}={path}: unknown extension {path.suffix or '(none)'}; set data.format to txt, jsonl, csv, tsv or "
            f"parquet, or use one of {', '.join(EXTENSIONS)}"
        )
    return EXTENSIONS[path.suffix.lower()]


def _read_txt(file: TextFile, limit: int | None) -> Iterator[str]:
    """Decodes out of a memory map, so that the text is held once."""
    with open(file.path, "rb") as handle:
        if file.path.stat().st_size == 0:
            raise Fault(f"{file.path}: is empty; give a file with text, or leave it out")
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as raw, memoryview(raw) as view:
            begin = len(codecs.BOM_UTF8) if raw[:3] == codecs.BOM_UTF8 else 0
            end = len(raw) if limit is None else min(begin + limit, len(raw))
            with view[begin:end] as part:
                text = codecs.utf_8_decode(part, "strict", end == len(raw))[0]
    yield text


def _read_jsonl(file: TextFile) -> Iterator[str]:
    with open(file.path, encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise Fault(f"{file.path}:{number}: not JSON ({error.msg} at column {error.colno})") from None
            if not isinstance(row, dict):
                raise Fault(
                    f'{file.path}:{number}: not a JSON object; each line must be like {{"{file.column}": "..."}}'
                )
            if file.column not in row:
                raise _no_column(f"{file.path}:{number}", file.column, list(row))
            yield text_of(f"{file.path}:{number}", file.column, row[file.column])


def _read_table(file: TextFile) -> Iterator[str]:
    csv.field_size_limit(sys.maxsize)  # the default refuses long documents
    with open(file.path, encoding="utf-8-sig", newline="") as lines:
        if file.format == "csv":
            rows = csv.reader(lines, strict=True)
        else:
            rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        try:
            yield from _rows(file, rows)
        except csv.Error as error:
            raise Fault(f"{file.path}:{rows.line_num}: not {file.format} ({error})") from None


def _rows(file: TextFile, rows: Any) -> Iterator[str]:
    header = next(rows, None)
    if header is None:
        raise Fault(f"{file.path}: is empty; give a file with a header and rows, or leave it out")
    if file.column not in header:
        raise _no_column(str(file.path), file.column, header)
    index, empty = header.index(file.column), True
    for row in rows:
        if not row:  # a blank line
            continue
        if len(row) != len(header):
            raise Fault(f"{file.path}:{rows.line_num}: {len(row)} fields in this row, {len(header)} in the header")
        empty = False
        yield row[index]
    if empty:
        raise Fault(f"{file.path}: has a header but no rows; give a file with rows, or leave it out")


def _read_parquet(file: TextFile) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet, types

    number = 0
    try:
        with parquet.ParquetFile(file.path) as table:
            schema = table.schema_arrow
            if file.column not in schema.names:
                raise _no_column(str(file.path), file.column, schema.names)
            kind = schema.field(file.column).type
            if not (types.is_string(kind) or types.is_large_string(kind)):
                raise Fault(f"{file.path}: column {file.column} holds {kind}, not text; set data.column to one of text")
            for batch in table.iter_batches(batch_size=1024, columns=[file.column]):
                for value in batch.column(0):
                    number += 1
                    yield text_of(f"{file.path}: row {number}", file.column, value.as_py())
    except UnicodeDecodeError:
        raise Fault(f"{file.path}: row {number}: {file.column} is not UTF-8; write the file again from text") from None
    except pyarrow.ArrowException as error:
        raise Fault(f"{file.path}: not a parquet file that can be read ({str(error).splitlines()[0]})") from None


def text_of(place: str, column: str, value: Any) -> str:
    if value is None:
        raise Fault(f"{place}: {column} is null; remove the row or give it text")
    if not isinstance(value, str):
        raise Fault(f"{place}: {column} holds {type(value).__name__}, not text; set data.column to a column of text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
            raise Fault(f"{place}: {column} is not valid Unicode at character {error.start}") from None
    return value


def _no_column(place: str, column: str, columns: list[str]) -> Fault:
    listed = ", ".join(columns)
    near = did_you_mean(column, columns)
    return Fault(f"data.column={column}: {place} has columns {listed}{near if 'mean' in near else ''}")


ROW_READERS = {"jsonl": _read_jsonl, "csv": _read_table, "tsv": _read_table, "parquet": _read_parquet}


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Says in one line which file cannot be read, and why."""
    try:
        yield
    except UnicodeDecodeError:
        raise Fault(_where_not_utf8(path)) from None
    except OSError as error:
        raise Fault(f"{path}: {error.strerror or error}") from None


def _where_not_utf8(path: Path) -> str:
    """Reads the file again: the readers know the offset within their buffers only."""
    decoder, offset = codecs.getincrementaldecoder("utf-8")("strict"), 0
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                offset += error.start - pending
                break
            offset += len(block)
        else:
            offset -= len(decoder.getstate()[0])
        file.seek(offset)
        value = file.read(1)
    return (
        f"{path}: not UTF-8 at byte {offset} (0x{value.hex()}); convert it, for example with `iconv -f latin1 -t utf-8`"
    )
