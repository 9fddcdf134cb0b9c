"""Files that are written whole or not at all, what is there and what cannot be read, JSON of any numbers, locks."""

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
TEMPORARY = ".*.tmp"  # names of files and folders that are not whole yet


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file that becomes `path` when the block ends, whole and on disk; on an error `path` stays as it was."""
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
    """Writes a text file, whole or not at all; half of a surrogate pair, which no file can hold, is spelled out."""
    with atomic(path) as file:
        file.write(text.encode("utf-8", ERRORS))


def sync(path: Path) -> None:
    """Brings a file, or the names in a folder, to the disk, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporary(folder: Path) -> None:
    """Removes the files that writers which were killed left in a folder; for the one process that writes there now."""
    for path in listed(folder, TEMPORARY):
        if path.is_file() or path.is_symlink():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Says in one line what keeps `path` from being read; that nothing can be there stays an OSError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
        why = error.strerror or error
        raise Unavailable(f"{error.filename or path} cannot be read: {why}; make it readable, then try again") from None


def exists(path: Path) -> bool:
    """Whether there is something at `path`; UserError where nobody can tell, which is another answer than no."""
    with reading(path):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # no path has a NUL byte
            return False
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # nothing can be there
                return False
            raise
    return True


def expanded(path: Path | str) -> Path:
    """The path, `~` replaced by the home folder; UserError where the system knows of none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise Unavailable(f"{path}: this system knows of no home folder; set HOME, or give a whole path") from None


def is_at(file: IO[bytes], path: Path) -> bool:
    """Whether a file that is held open is still what lies at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """What a folder holds of names like `pattern`, sorted; nothing where it is not there; UserError where it is
    unreadable.

    `Path.glob` says that a folder which it may not read is empty.
    """
    try:
        with reading(folder), os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(fnmatch.filter(names, pattern))]


def walked(root: Path | str, cannot_list: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Every folder at and below `root` with the names of the folders and of the files in it, as os.walk has it.

    However deep folders lie, of which os.walk makes a RecursionError; what is taken out of the folders is not entered.
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
        for name in reversed(below):  # the last that waits is taken first
            path = os.path.join(folder, name)
            if not os.path.islink(path):  # it may lead back up
                waiting.append(path)


def plain_json(value: Any, indent: int | None = None) -> str:
    """JSON text of plain values and of numbers of NumPy and torch; nan and infinities as text, as `\\udcff` is too."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=indent)
    # Half of a surrogate pair stands for a byte of a name that is not UTF-8. As a text of six characters, since an
    # escape would be the same half again to whoever reads it, and could not be written a second time.
    return SURROGATE.sub(_as_text, text)


def _as_text(surrogate: re.Match[str]) -> str:
    return rf"\\u{ord(surrogate[0]):04x}"


def _plain(value: Any) -> Any:
    """`value` in JSON's types; a number of NumPy or torch by its `item`, nan and infinities as text."""
    if isinstance(value, float):
        number = float(value)  # of NumPy, which has floats that are Python's, too
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
    """The file at `path`, this process's alone until it is closed; None where another process holds it.

    On a file system without locks it is unguarded: better than not at all. UserError where a link or a pipe lies there.
    """
    lock = open_append(path)  # whoever asks holds it
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: workers do not inherit it
    except (BlockingIOError, PermissionError):
        lock.close()
        return None
    except OSError:
        pass
    return lock


def is_locked(file: IO[bytes]) -> bool:
    """Whether another process holds the file that `locked` gave it; asked with a lock that readers share."""
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:  # a file system without locks
        return False
    return False
