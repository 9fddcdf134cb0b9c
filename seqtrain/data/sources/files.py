"""Local files of text: find them, and read documents and rows from txt, jsonl, csv, tsv and parquet.

A txt file is one document; in other formats each row is one. Text is strict UTF-8; a byte order mark is dropped, and
line ends are unchanged, so that byte counts match the file. csv is quoted as usual, tsv is not quoted.
"""

from __future__ import annotations

import codecs
import csv
import glob
import itertools
import json
import mmap
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqtrain.data.sources.base import Row, Segment
from seqtrain.data.sources.columns import Column, require, row_of
from seqtrain.data.sources.opening import PLAIN, Packed, absent, readable, sniff, unpacked_name
from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import expanded
from seqtrain.files.checked import LINK, stays_within

BLOCK_BYTES = 1 << 20  # size of the blocks in which a txt file is read
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
    packed: Packed = PLAIN
    header: bool = True  # of csv and tsv; without a header, columns are named by their numbers, from 1
    quoted: bool = False  # of tsv: True if `"` may surround values, as it always may in csv

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """Yield the file's rows; with `limit`, read only about the first `limit` bytes of a txt file.

        Raises UserError for a row that cannot be read, when it is reached.
        """
        if self.format != "parquet":
            check_is_text(self.path, self.packed)
        empty = True
        with readable(self.path, _chosen(self.packed)):
            for row in READERS[self.format](self, limit):
                empty = False
                yield row
        if empty:
            raise UserError(f"{self.path}: contains no rows; give a file with text, or leave it out")

    def segments(self) -> Iterator[Segment]:
        """Yield the text of the file's rows, and a txt file in blocks; raise UserError as `rows` does."""
        if self.format != "txt":
            for row in self.rows():
                yield Segment(row[self.columns[0].field], True)
            return
        check_is_text(self.path)
        with readable(self.path):
            yield from _txt_blocks(self)


def lines(path: Path, packed: Packed = PLAIN) -> Iterator[str]:
    """Yield the lines of a text file without line ends, which are LF or CR LF and no other character.

    Raises UserError for a line that cannot be read, when it is reached.
    """
    check_is_text(path, packed)
    with readable(path, _chosen(packed)), packed.open_text(path, newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n").removesuffix("\r")


def _chosen(packed: Packed) -> Packed | None:
    """Return None for the default, which means that the source has no option `data.encoding`."""
    return None if packed is PLAIN else packed


def check_is_text(path: Path, packed: Packed = PLAIN) -> None:
    """Raise UserError if the first bytes of a file show that it is not text."""
    if kind := sniff(path, packed):
        raise UserError(f"{path}: {kind}")


def find(key: str, path: str, format: Format | Literal["auto"], columns: Sequence[Column]) -> list[TextFile]:
    """Return the files behind a path, a glob or a folder, in natural order.

    A folder means every file below it with a known extension (any extension if `format` is given), except hidden files.

    Args:
        key: The option that names the files.
        path: A file, a glob or a folder.
        format: Format of the files; auto = by their extension.
        columns: Columns to read.
    """
    where = expanded(path)
    try:
        paths = _paths(key, path, where, format)
    except RecursionError:
        raise UserError(
            f"{key}={path}: folders are nested too deeply to be searched; give the folder that contains the files"
        ) from None
    home = where
    if not where.is_dir():
        home = _folder_of_pattern(where)
    if paths != [where]:  # a file that the user names directly may be a link to anywhere
        for file in paths:
            if not stays_within(file, home):
                raise UserError(f"{key}={path}: {file} is {LINK}, or give that file itself")
    return [TextFile(file, _format_of(key, file, format), columns) for file in sorted(paths, key=natural_order)]


def natural_order(path: Path) -> tuple[list[Any], str]:
    """Return a sort key that puts file-2 before file-10."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], path.as_posix()


def _paths(key: str, path: str, where: Path, format: Format | Literal["auto"]) -> list[Path]:
    """Return the files, in any order; raise UserError if there are none."""
    if where.is_file():  # first, because a file's name may look like a pattern
        return [where]
    if where.is_dir():
        paths = [p for p in where.rglob("*") if _is_wanted(p.relative_to(where), format) and p.is_file()]
        if paths:
            return paths
        looked_for = "any name"
        if format == "auto":
            looked_for = f"{', '.join(EXTENSIONS)}; set data.format for another extension"
        raise Unavailable(f"{key}={path}: no file in this folder (looked for {looked_for})")
    if not glob.has_magic(path):
        raise Unavailable(f"{key}={path}: {absent(where, 'file or folder')}")
    paths = list(filter(Path.is_file, map(Path, glob.glob(str(where), recursive=True))))
    if not paths:
        raise Unavailable(f"{key}={path}: no file matches; put the pattern in quotes, and check the folder")
    return paths


def _folder_of_pattern(pattern: Path) -> Path:
    """Return the folder at the beginning of a pattern: its parts before the first wildcard."""
    return Path(*itertools.takewhile(lambda part: not glob.has_magic(part), pattern.parts))


def _is_wanted(path: Path, format: str) -> bool:
    if any(part.startswith(".") for part in path.parts):  # hidden, such as .git
        return False
    return format != "auto" or path.suffix.lower() in EXTENSIONS


def _format_of(key: str, path: Path, format: Format | Literal["auto"]) -> Format:
    if format != "auto":
        return format
    suffix = unpacked_name(path).suffix.lower()
    if suffix not in EXTENSIONS:
        raise UserError(
            f"{key}={path}: unknown extension {path.suffix or '(none)'}; set data.format to txt, jsonl, csv, tsv or "
            f"parquet, or use one of {', '.join(EXTENSIONS)}"
        )
    return EXTENSIONS[suffix]


def _read_txt(file: TextFile, limit: int | None) -> Iterator[Row]:
    """Decode a txt file from a memory map, so that only the decoded text is in memory."""
    if len(file.columns) > 1:
        names = " and ".join(column.option for column in file.columns)
        raise UserError(f"{file.path}: a txt file has no columns; {names} need jsonl, csv, tsv or parquet")
    with open(file.path, "rb") as handle:
        # An empty file cannot be memory-mapped; a file with only a byte order mark is empty, too.
        if handle.read(len(codecs.BOM_UTF8) + 1) in (b"", codecs.BOM_UTF8):
            raise UserError(f"{file.path}: is empty; give a file with text, or leave it out")
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as raw, memoryview(raw) as view:
            begin = len(codecs.BOM_UTF8) if raw[:3] == codecs.BOM_UTF8 else 0
            end = len(raw) if limit is None else min(begin + limit, len(raw))
            with view[begin:end] as part:
                # An incomplete character is dropped at `limit`, but is an error at the end of the file.
                text = codecs.utf_8_decode(part, "strict", end == len(raw))[0]
    yield {file.columns[0].field: text}


def _txt_blocks(file: TextFile) -> Iterator[Segment]:
    """Yield a txt file in blocks of BLOCK_BYTES, strictly decoded; a byte order mark is dropped."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    empty = True
    with open(file.path, "rb") as handle:
        for block in iter(lambda: handle.read(BLOCK_BYTES), b""):
            text = decoder.decode(block)
            if empty:
                text = text.removeprefix("\ufeff")
            if text:
                empty = False
                yield Segment(text, False)
    decoder.decode(b"", final=True)  # raises if the file ends within a character
    if empty:
        raise UserError(f"{file.path}: is empty; give a file with text, or leave it out")
    yield Segment("", True)


def _read_jsonl(file: TextFile, limit: int | None) -> Iterator[Row]:
    like = ", ".join(f'"{column.name}": "..."' for column in file.columns)
    for place, row in json_rows(file.path, file.packed, like):
        require(place, file.columns, list(row))
        yield row_of(place, file.columns, [row[column.name] for column in file.columns])


def json_rows(path: Path, packed: Packed, like: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON lines file, each with its location; raise UserError if a line is not an object.

    Args:
        path: The file.
        packed: Compression and encoding.
        like: Example of an object's content, for the message.
    """
    with readable(path, _chosen(packed)), packed.open_text(path) as lines:  # drops a byte order mark
        for number, line in enumerate(lines, 1):
            if not line.strip():  # some programs write a blank line at the end
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # Python limits the depth, and the digits of integers
                raise UserError(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise UserError(f"{path}:{number}: not a JSON object; each line must be like {{{like}}}")
            yield f"{path}:{number}", row


def _read_table(file: TextFile, limit: int | None) -> Iterator[Row]:
    with file.packed.open_text(file.path, newline="") as lines:
        rows = split_table(lines, file.format, file.quoted or file.format == "csv")
        try:
            yield from _rows(file, rows)
        except csv.Error as error:
            raise UserError(f"{file.path}:{rows.line_num}: not {file.format} ({error})") from None


def _rows(file: TextFile, rows: Any) -> Iterator[Row]:
    rows_left = filter(None, rows)  # without blank lines
    header = next(rows_left, None)
    if header is None:
        raise UserError(f"{file.path}: is empty; give a file with a header and rows, or leave it out")
    if not file.header:
        rows_left, header = itertools.chain([header], rows_left), list(map(str, range(1, len(header) + 1)))
    require(str(file.path), file.columns, header)
    indices = [header.index(column.name) for column in file.columns]
    empty = True
    of = "in the header" if file.header else "in the first"
    for row in rows_left:
        if len(row) != len(header):
            raise UserError(
                f"{file.path}:{rows.line_num}: {len(row)} fields in this row, {len(header)} {of}; correct the row, or "
                "put quotes around fields that contain the delimiter"
            )
        if len(row) > 1 and row == header:  # concatenated files: the header would be training data
            raise UserError(f"{file.path}:{rows.line_num}: the header is repeated here; remove this line")
        empty = False
        # The line on which the row ends: quoted text may span several lines.
        yield row_of(f"{file.path}:{rows.line_num}", file.columns, map(row.__getitem__, indices))
    if empty:
        raise UserError(f"{file.path}: has a header but no rows; give a file with rows, or leave it out")


def split_table(lines: Iterable[str], kind: str, quoted: bool) -> Any:
    """Split a csv or tsv into rows; strict, because a lenient reader guesses what a stray quote means."""
    csv.field_size_limit(sys.maxsize)  # the default limit rejects long documents
    delimiter = "," if kind == "csv" else "\t"
    if quoted:
        return csv.reader(lines, delimiter=delimiter, strict=True)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def first_row(path: Path, kind: str, packed: Packed) -> list[str]:
    """Return the first row of a csv or tsv that is not blank."""
    check_is_text(path, packed)
    with readable(path, packed), packed.open_text(path, newline="") as lines:
        try:
            return next(filter(None, split_table(lines, kind, kind == "csv")), [])
        except csv.Error as error:
            raise UserError(f"{path}: not {kind} ({error})") from None


def _read_parquet(file: TextFile, limit: int | None) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(file.path) as table:
            require(str(file.path), file.columns, table.schema_arrow.names)
            names = [column.name for column in file.columns]
            for batch in table.iter_batches(batch_size=1024, columns=names):
                for values in zip(*map(batch.column, names), strict=True):
                    number += 1  # before values are decoded, so that an error names their row
                    yield row_of(f"{file.path}: row {number}", file.columns, map(methodcaller("as_py"), values))
    except UnicodeDecodeError:
        names = " or ".join(column.name for column in file.columns)
        raise UserError(f"{file.path}: row {number}: {names} is not UTF-8; write the file again from strings") from None
    except pyarrow.ArrowException as error:
        raise UserError(f"{file.path}: not a parquet file that can be read ({str(error).splitlines()[0]})") from None


READERS = {
    "txt": _read_txt,
    "jsonl": _read_jsonl,
    "csv": _read_table,
    "tsv": _read_table,
    "parquet": _read_parquet,
}
"""Reader of each format. Only the reader of txt applies `limit`, because its only row may be large."""
