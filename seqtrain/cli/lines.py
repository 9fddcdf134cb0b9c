"""Texts from arguments, files and pipes, as they arrive, each with its place for error messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seqtrain.data.sources.opening import sniff
from seqtrain.errors import UserError
from seqtrain.terminal import is_unicode, tell

REMEDY = "give a file of texts, one a line"
MAX_LINE_BYTES = 1 << 26  # a device such as /dev/zero has no line ends
CHUNK = 1 << 16  # bytes to read at a time; a pipe may return fewer


@dataclass(frozen=True)
class Line:
    """A text, or the reason why it cannot be read."""

    place: dict[str, int]  # {"line": 17} in a file, {"argument": 1} on the command line
    where: str  # the same in words: FILE:17, TEXT 1
    text: str
    reason: str | None = None

    def report(self, reason: str) -> None:
        """Print on standard error why this text has no answer."""
        tell(f"error: {self.where}: {reason}")


def from_arguments(texts: Iterable[str]) -> Iterator[Line]:
    """Yield the texts of a command line. They contain bytes that are not UTF-8 as lone surrogates."""
    for number, text in enumerate(texts, 1):
        reason = None if is_unicode(text) else "not UTF-8"  # no error here, so that the others are answered
        yield Line({"argument": number}, f"TEXT {number}", text, reason)


def open_file(path: Path) -> BinaryIO:
    """Open a file, or standard input for `-`; raise UserError if it cannot be opened."""
    if str(path) == "-":
        return sys.stdin.buffer
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {REMEDY}") from None


def open_lines(path: Path) -> BinaryIO:
    """Open a file of texts, or standard input; raise UserError if it cannot be read."""
    file = open_file(path)
    check_lines(path)
    return file


def check_lines(path: Path) -> None:
    """Raise UserError if a file is empty or not text; a pipe cannot be checked."""
    if not path.is_file():
        return
    if path.stat().st_size == 0:
        raise UserError(f"{path}: is empty; {REMEDY}")
    kind = sniff(path)
    if kind:
        raise UserError(f"{path}: {kind}")


def check_apart(read: Path | None, written: Path | None) -> None:
    """Raise UserError if an output would overwrite the input before it is read."""
    if read is None or written is None or str(read) == "-":
        return
    if read.exists() and written.exists() and written.samefile(read):
        raise UserError(f"--output {written}: is the input itself; name another file")


def from_file(file: BinaryIO, path: Path) -> Iterator[list[Line]]:
    """Yield the lines of a file, as many at a time as have arrived. A line ends only at LF or CR LF."""
    name = "standard input" if str(path) == "-" else str(path)
    number = 0
    for lines in _arriving(file, name):
        yield [_line(line, name, number + index) for index, line in enumerate(lines, 1)]
        number += len(lines)


def batches(arriving: Iterable[list[Line]], size: int) -> Iterator[list[Line]]:
    """Yield at most `size` lines at a time, without waiting for more to arrive."""
    for lines in arriving:
        for begin in range(0, len(lines), size):
            yield lines[begin : begin + size]


def _arriving(file: BinaryIO, name: str) -> Iterator[list[bytes]]:
    chunks: list[bytes] = []  # parts of the unfinished line; joined once, since there may be thousands
    size = 0  # of `chunks`
    while chunk := _read(file, name):
        if b"\n" not in chunk:
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_LINE_BYTES:
                raise UserError(f"{name}: a line of more than {MAX_LINE_BYTES:,} bytes; {REMEDY}")
            continue
        *lines, rest = b"".join([*chunks, chunk]).split(b"\n")
        chunks = [rest] if rest else []
        size = len(rest)
        yield lines
    if chunks:  # a last line without a line end
        yield [b"".join(chunks)]


def _read(file: BinaryIO, name: str) -> bytes:
    """Return the bytes that have arrived; empty at the end. Python's own buffer would wait until it is full."""
    try:
        return os.read(file.fileno(), CHUNK)
    except OSError as error:  # standard input may be a folder
        raise UserError(f"{name}: {error.strerror}; {REMEDY}") from None


def _line(line: bytes, name: str, number: int) -> Line:
    place, where = {"line": number}, f"{name}:{number}"
    line = line.removesuffix(b"\r")  # as in files of training
    encoding = "utf-8-sig" if number == 1 else "utf-8"  # only a file may begin with a byte order mark
    try:
        return Line(place, where, line.decode(encoding))
    except UnicodeDecodeError as error:
        return Line(place, where, "", f"byte {error.start} of the line is not UTF-8")
