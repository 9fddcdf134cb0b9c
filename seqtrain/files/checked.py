"""Files that may be untrusted: an opened file is a plain file of bounded size, or it is refused.

A link may lead anywhere, reading a pipe may block forever, and a device never ends. The file is checked after it was
opened, by its own handle, so that it cannot be replaced in between.
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


def open_checked(path: Path, limit: int | None = None) -> BinaryIO:
    """Open a plain file for reading.

    Args:
        path: The file, which may be a link within its folder only.
        limit: The largest size in bytes. None: any size.

    Raises:
        UserError: It is a link that leads out, a folder, a pipe or a device, or too large.
        OSError: It does not exist, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # so that no pipe is waited for
    file = os.fdopen(_opened(path, flags, path.parent), "rb")
    size = os.fstat(file.fileno()).st_size
    if limit is not None and size > limit:
        file.close()
        raise UserError(f"{path}: {size:,} bytes, more than belong there ({limit:,})")
    return file


def read_checked(path: Path, limit: int) -> bytes:
    """Return the content of a plain file of at most `limit` bytes. Raises as `open_checked` does."""
    with open_checked(path, limit) as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew, or reports no size, as in /proc
        raise UserError(f"{path}: more bytes than belong there ({limit:,})")
    return content


def load_json(path: Path, limit: int) -> Any:
    """Return the value in a JSON file of at most `limit` bytes.

    Raises:
        UserError: As `open_checked` does.
        OSError: It cannot be read.
        ValueError: It is not JSON, or has too many values.
        RecursionError: It is nested too deep.
    """
    content = read_checked(path, limit)
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MAX_JSON_VALUES:
        raise ValueError(f"more than {MAX_JSON_VALUES:,} values, which nothing here holds")
    return loads_unicode(content)


def loads_unicode(content: bytes) -> Any:
    """Return the value in JSON; all of its texts can be written again.

    Raises:
        ValueError: It is not JSON, or has a lone surrogate.
        RecursionError: It is nested too deep.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(str(error)) from None  # for messages: the original error holds the whole content
    value = json.loads(text)
    # UTF-8 has no lone surrogates, so only an escape can spell one; without an escape no check is needed.
    if SURROGATE.search(content) and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise ValueError(NO_UNICODE)
    return value


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks, so that its size does not matter."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()


def check_png(path: Path) -> None:
    """Raise UserError, from the header, if the file is not PNG or would fill the memory once unpacked."""
    with open_checked(path, MAX_PNG_BYTES) as file:
        head = file.read(1 << 16)
    before, data, _ = head.partition(b"IDAT")
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    one = head[:8] == PNG and head[12:16] == b"IHDR" and before.count(b"IHDR") == 1  # of two headers the last counts
    if not (one and data) or not 0 < width * height <= MAX_PNG_PIXELS:
        raise UserError(f"{path}: no picture that a run draws; remove it")


def copy_checked(path: Path, target: Path, limit: int) -> None:
    """Copy a plain file of at most `limit` bytes to a new one, with its times. Raises as `open_checked` does.

    Args:
        path: File to copy.
        target: New file; an existing one is replaced.
        limit: The largest size in bytes.
    """
    with open_checked(path, limit) as file, open_new(target) as copy:
        shutil.copyfileobj(file, copy)
        found = os.fstat(file.fileno())
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def open_append(path: Path) -> IO[bytes]:
    """Open a plain file for appending, unbuffered; create it if needed. Raises UserError for a link."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(_opened(path, flags, None), "ab", buffering=0)


def open_new(path: Path) -> IO[bytes]:
    """Open a new file for writing; remove an existing file or link of that name first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except FileExistsError:  # left by a killed process, or placed there
        path.unlink()
        handle = os.open(path, flags, 0o666)
    return os.fdopen(handle, "wb")


def stays_within(path: Path, home: Path) -> bool:
    """Return True if the path resolves into this folder, or, in the hub's own cache, into the blobs beside it."""
    try:
        real, home = path.resolve(), home.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return False
    blobs = home.parent.parent / "blobs"
    return real.is_relative_to(home) or (home.parent.name == "snapshots" and real.is_relative_to(blobs))


def _opened(path: Path, flags: int, home: Path | None) -> int:
    """Return the handle of a plain file, checked after opening. `home`: folder for targets of links; None: no links."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
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
