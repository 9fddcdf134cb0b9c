"""Files that are written whole or not at all, JSON of any numbers, and locks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file that becomes `path` when the block ends, whole and on disk; on an error `path` stays as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # beside its target: os.replace must not copy
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, survives a power cut
    finally:
        os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with atomic(path) as file:
        file.write(text.encode("utf-8"))


def plain_json(value: Any, indent: int | None = None) -> str:
    """JSON text of plain values and of numbers of NumPy and torch; nan and infinities as text."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _plain(value: Any) -> Any:
    """`value` in JSON's types; a number of NumPy or torch by its `item`, nan and infinities as text."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    return str(value) if isinstance(value, Path | datetime) else _plain(value.item())


def locked(path: Path) -> IO[bytes] | None:
    """The file at `path`, this process's alone until it is closed; None where another process holds it.

    On a file system without locks it is unguarded: better than not at all.
    """
    lock = open(path, "ab")  # noqa: SIM115 - whoever asks holds it
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: workers do not inherit it
    except (BlockingIOError, PermissionError):
        lock.close()
        return None
    except OSError:
        pass
    return lock
