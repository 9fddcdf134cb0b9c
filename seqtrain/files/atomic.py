"""Atomic writes, tests for existence, listing of folders, JSON of any numbers, and locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from seqtrain.errors import Unavailable
from seqtrain.files.checked import open_append, open_new
from seqtrain.terminal import ERRORS

SURROGATE = re.compile("[\ud800-\udfff]")
TEMPORARY = ".*.tmp"  # names of incomplete files and folders


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that becomes `path` when the block ends, complete and on disk. On an error `path` does not change."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # beside its target: os.replace must not copy
    try:
        with open_new(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically. Lone surrogates, which no file can hold, are spelled out."""
    with atomic(path) as file:
        file.write(text.encode("utf-8", ERRORS))


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporary(folder: Path) -> None:
    """Remove files that killed writers left in a folder; only for the process that writes there now."""
    for path in listed(folder, TEMPORARY):
        if path.is_file() or path.is_symlink():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise Unavailable in one line if `path` cannot be read; OSError if nothing can exist there."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
        why = error.strerror or error
        raise Unavailable(f"{error.filename or path} cannot be read: {why}; make it readable, then try again") from None


def exists(path: Path) -> bool:
    """Return True if something exists at `path`. Raises UserError if the system cannot tell."""
    with reading(path):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL byte, which no path has
            return False
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # nothing can be there
                return False
            raise
    return True


def expanded(path: Path | str) -> Path:
    """Return the path with `~` replaced by the home folder. Raises UserError if the system has none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise Unavailable(f"{path}: this system knows of no home folder; set HOME, or give a whole path") from None


def is_at(file: IO[bytes], path: Path) -> bool:
    """Return True if an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """Return sorted paths in a folder whose names match `pattern`; empty without a folder; UserError if unreadable.

    `Path.glob` treats an unreadable folder as empty.
    """
    try:
        with reading(folder), os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(fnmatch.filter(names, pattern))]


def walked(root: Path | str, cannot_list: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield every folder at and below `root`, with the names of its folders and files, as os.walk does.

    It works at any depth, at which os.walk raises RecursionError. Names removed from the list of folders are not
    entered.

    Args:
        root: Folder to begin with.
        cannot_list: Called with the error for a folder that cannot be listed.
    """
    waiting = [os.fspath(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                below: list[str] = []
                files: list[str] = []
                for entry in entries:
                    if entry.is_dir():
                        below.append(entry.name)
                    else:
                        files.append(entry.name)
        except OSError as error:
            cannot_list(error)
            continue
        yield folder, below, files
        for name in reversed(below):  # the list is a stack: its last entry is next
            path = os.path.join(folder, name)
            if not os.path.islink(path):  # it may lead back up
                waiting.append(path)


def plain_json(value: Any, indent: int | None = None) -> str:
    """Return JSON text of plain values and NumPy or torch numbers; nan, infinities and lone surrogates as text."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=indent)
    # A lone surrogate stands for a byte of a name that is not UTF-8. It is written as six plain characters:
    # an escape would be read as the surrogate again, which could not be written a second time.
    return SURROGATE.sub(_as_text, text)


def _as_text(surrogate: re.Match[str]) -> str:
    return rf"\\u{ord(surrogate[0]):04x}"


def _plain(value: Any) -> Any:
    """Return `value` in JSON's types: NumPy and torch numbers by `item`, nan and infinities as text."""
    if isinstance(value, float):
        number = float(value)  # NumPy's float64 is a subclass
        return number if math.isfinite(number) else str(number)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    if isinstance(value, Path | datetime):
        return str(value)
    return _plain(value.item())


def locked(path: Path) -> IO[bytes] | None:
    """Open the file at `path` with an exclusive lock until it is closed; return None if another process holds it.

    On a file system without locks it is not guarded. Raises UserError for a link or a pipe.
    """
    lock = open_append(path)  # the caller holds it
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: workers do not inherit it
    except (BlockingIOError, PermissionError):
        lock.close()
        return None
    except OSError:
        pass
    return lock


def is_locked(file: IO[bytes]) -> bool:
    """Return True if another process holds the lock of `locked`. The test takes a lock that readers share."""
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:  # a file system without locks
        return False
    return False
