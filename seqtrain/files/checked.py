"""Files that somebody else may have put there: what was opened is a plain file of bounded size, or it is refused.

A link may lead anywhere, a pipe is waited for without end, a device never ends. The file is judged after it was opened,
by its own handle, so that nothing can take its place in between.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import IO, Any, BinaryIO

from seqtrain.errors import UserError
from seqtrain.terminal import is_unicode

LINK = "a link that leads out of its folder, which is not followed; put there what it points to"
NO_FILE = "neither a file nor a folder; remove it"
PNG = b"\x89PNG\r\n\x1a\n"
MAX_PNG_BYTES = 1 << 26
MAX_PNG_PIXELS = 1 << 24  # a few bytes may stand for any number of them
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # the escape of half a pair, also where its other half follows
NO_UNICODE = "holds half of a surrogate pair, which is no Unicode and could not be written again"
BLOCK_BYTES = 1 << 20  # read at a time where a file is hashed
MAX_JSON_VALUES = 1 << 23  # an empty list takes 30 times as much memory as it takes of the file


def open_checked(path: Path, limit: int | None = None, *, home: Path | None = None) -> BinaryIO:
    """Opens a plain file for reading.

    Args:
        path: The file, which may be a link within `home` and nowhere else.
        limit: The most bytes that it may have; None for any number.
        home: The folder that it belongs to; by default the one that it is in.

    Raises:
        UserError: it is a link that leads out, a folder, a pipe or a device, or too large.
        OSError: it is not there, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # so that no pipe is waited for
    file = os.fdopen(_opened(path, flags, home or path.parent), "rb")
    size = os.fstat(file.fileno()).st_size
    if limit is not None and size > limit:
        file.close()
        raise UserError(f"{path}: {size:,} bytes, more than belong there ({limit:,})")
    return file


def read_checked(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most `limit` bytes; raises as `open_checked` does."""
    with open_checked(path, limit) as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew, or tells no size, as in /proc
        raise UserError(f"{path}: more bytes than belong there ({limit:,})")
    return content


def load_json(path: Path, limit: int) -> Any:
    """The value in a JSON file of at most `limit` bytes.

    Raises:
        UserError: as `open_checked` does.
        OSError, ValueError, RecursionError: it cannot be read, or is no JSON, or nested too deep.
    """
    content = read_checked(path, limit)
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MAX_JSON_VALUES:
        raise ValueError(f"more than {MAX_JSON_VALUES:,} values, which nothing here holds")
    return loads_unicode(content)


def loads_unicode(content: bytes) -> Any:
    """The value in JSON, all of whose texts can be written again.

    Raises:
        ValueError, RecursionError: it is no JSON, or nested too deep, or spells half of a surrogate pair.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(str(error)) from None  # which shows in messages; this one's own form has all of the content
    value = json.loads(text)
    # UTF-8 itself has no such half, so only an escape can spell one; what has none need not be looked through.
    if SURROGATE.search(content) and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise ValueError(NO_UNICODE)
    return value


def file_hash(path: Path) -> str:
    """SHA-256 of a file, read in blocks, so that its size does not matter."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()


def check_png(path: Path) -> None:
    """UserError for a PNG file that would fill the memory once it is unpacked, or that is none; read from its
    header."""
    with open_checked(path, MAX_PNG_BYTES) as file:
        head = file.read(1 << 16)
    before, data, _ = head.partition(b"IDAT")
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    one = head[:8] == PNG and head[12:16] == b"IHDR" and before.count(b"IHDR") == 1  # of two headers the last counts
    if not (one and data) or not 0 < width * height <= MAX_PNG_PIXELS:
        raise UserError(f"{path}: no picture that a run draws; remove it")


def copy_checked(path: Path, target: Path, limit: int) -> None:
    """Copies a plain file of at most `limit` bytes to a new one, with its times; raises as `open_checked` does."""
    with open_checked(path, limit) as file, open_new(target) as copy:
        shutil.copyfileobj(file, copy)
        found = os.fstat(file.fileno())
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def open_append(path: Path) -> IO[bytes]:
    """Opens a plain file to add to its end, made where there is none, without a buffer; a link is refused by
    UserError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(_opened(path, flags, None), "ab", buffering=0)


def open_new(path: Path) -> IO[bytes]:
    """Opens a new file for writing; whatever has its name already, a link too, is removed first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except FileExistsError:  # left by a process that was killed, or laid there
        path.unlink()
        handle = os.open(path, flags, 0o666)
    return os.fdopen(handle, "wb")


def stays_within(path: Path, home: Path) -> bool:
    """Whether what a path leads to is in this folder; in the hub's own cache, among the blobs beside it, too."""
    try:
        real, home = path.resolve(), home.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return False
    blobs = home.parent.parent / "blobs"
    return real.is_relative_to(home) or (home.parent.name == "snapshots" and real.is_relative_to(blobs))


def _opened(path: Path, flags: int, home: Path | None) -> int:
    """The handle of a plain file, judged by what was opened; `home`: where a link may lead, None for nowhere."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise UserError(f"{path}: {NO_FILE}") from None
        if error.errno == errno.EISDIR:
            raise UserError(f"{path}: a folder where a file belongs") from None
        if error.errno != errno.ELOOP:
            raise
        if home is None or not stays_within(path, home):
            raise UserError(f"{path}: {LINK}") from None
        handle = os.open(path.resolve(), flags | os.O_NOFOLLOW, 0o666)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    raise UserError(f"{path}: {'a folder where a file belongs' if stat.S_ISDIR(mode) else NO_FILE}")
