"""Folders that appear together with their content, or not at all, even if the process that makes them is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from seqtrain.errors import UserError
from seqtrain.files.atomic import TEMPORARY, listed, locked, remove_temporary, sync, write_text

LOCK = ".lock"
STAGED = ".new-????????.tmp"  # names of folders being created or removed
_one_thread = threading.Lock()  # file locks exclude processes, not threads
_appearing: set[Path] = set()  # of this process


def made(path: Path, name: str, text: str) -> IO[bytes] | None:
    """Create the folder `path` with the file `name` in it; return its held lock, or None if the path is taken.

    An existing empty folder is filled, not replaced: it may be a process's working folder, or a mount point. If several
    processes request the same path, exactly one gets it.

    Args:
        path: Folder to create.
        name: Name of the file in it.
        text: Text of that file.

    Raises:
        OSError: The folder cannot be created.
    """
    target = Path(os.path.realpath(path))
    with _one_thread:
        remove_dead(target.parent)
        if os.path.lexists(target):
            return _filled(target, name, text)
        with contextlib.suppress(FileExistsError):  # if a file is there, the next call fails
            target.parent.mkdir(parents=True, exist_ok=True)
        staged, lock = _staged(target)
        try:
            write_text(staged / name, text)
            os.rename(staged, target)  # onto nothing or an empty folder; the lock goes along
        except BaseException as error:
            lock.close()
            shutil.rmtree(staged, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                return None  # another process was faster
            raise
    sync(target.parent)
    return lock


@contextlib.contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """Yield a new folder that becomes `target`, complete and on disk, when the block ends; remove it on an error."""
    with _one_thread:
        remove_dead(target.parent)
        staged, lock = _staged(target)
        _appearing.add(staged)
    try:
        yield staged
        for path in (*staged.iterdir(), staged):
            sync(path)
        os.rename(staged, target)
        (target / LOCK).unlink()
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    finally:
        lock.close()
        _appearing.discard(staged)
    sync(target.absolute().parent)


def vacant(folder: Path) -> bool:
    """Return True if a folder is empty, or holds only what a start that was killed early has left."""
    return all(path.name == LOCK or fnmatch(path.name, TEMPORARY) for path in listed(folder))


def remove(path: Path) -> None:
    """Remove a folder. If it is killed midway, nothing is left under that name."""
    target = Path(os.path.realpath(path))
    staged = _name_beside(target)
    try:
        os.rename(target, staged)
    except OSError:  # a disk is mounted on it
        staged = target
    shutil.rmtree(staged, ignore_errors=True)


def _staged(target: Path) -> tuple[Path, IO[bytes]]:
    """Create a folder beside `target`; return it with its held lock."""
    while True:
        staged = _name_beside(target)
        staged.mkdir()
        with contextlib.suppress(FileNotFoundError):  # another start may remove it as dead
            lock = locked(staged / LOCK)
            if lock is not None and (staged / LOCK).exists():
                return staged, lock


def _filled(folder: Path, name: str, text: str) -> IO[bytes] | None:
    """Write the file into a vacant folder and return its lock; None if it is not vacant or another process fills it."""
    if not folder.is_dir() or not vacant(folder):
        return None
    lock = locked(folder / LOCK)
    if lock is None:
        return None
    try:
        if vacant(folder):  # checked again: under the lock it stays so
            remove_temporary(folder)
            write_text(folder / name, text)
            return lock
    except BaseException:
        lock.close()
        raise
    lock.close()
    return None


def _name_beside(target: Path) -> Path:
    return target.with_name(STAGED.replace("????????", secrets.token_hex(4)))


def remove_dead(parent: Path) -> None:
    """Remove staged folders whose process has ended, which releases their lock."""
    with contextlib.suppress(OSError, UserError, RecursionError):  # RecursionError: very deep folders
        for staged in {*listed(parent, STAGED)} - _appearing:
            if staged.is_symlink() or not staged.is_dir():  # never made by a start
                continue
            lock = locked(staged / LOCK)
            if lock is not None:
                shutil.rmtree(staged, ignore_errors=True)
                lock.close()
