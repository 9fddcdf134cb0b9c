"""Runs in a folder, and their status."""

from __future__ import annotations

import functools
from fnmatch import fnmatch
from pathlib import Path

from seqtrain.errors import Unavailable
from seqtrain.files import folders
from seqtrain.files.atomic import is_locked, reading, walked
from seqtrain.files.checked import open_checked
from seqtrain.files.folders import LOCK
from seqtrain.runs.directory import CONFIG, METRICS, Run
from seqtrain.runs.summary import Summary
from seqtrain.terminal import printable


def list_runs(root: Path | str, unread: list[str] | None = None) -> list[Run]:
    """Return every run in `root` and in its folders, such as sweeps, in the order of their paths.

    A folder that cannot be read raises UserError, or adds a line to `unread` if that is given.
    """
    runs = []
    for folder, below, files in walked(root, functools.partial(_cannot_list, unread)):
        below[:] = sorted(name for name in below if not fnmatch(name, folders.STAGED))
        if CONFIG in files and (METRICS in files or LOCK in files):
            below.clear()
            runs.append(Run(Path(folder)))
    return runs


def _cannot_list(unread: list[str] | None, error: OSError) -> None:
    """Report that a folder was left out, unless it was removed meanwhile."""
    if isinstance(error, FileNotFoundError):
        return
    if unread is None:
        raise Unavailable(
            f"{error.filename} cannot be read: {error.strerror}; make it readable, or name the runs themselves"
        )
    unread.append(printable(f"left out: {error.filename} cannot be read: {error.strerror}"))


def is_written(run: Path) -> bool:
    """Return True if a process of this machine holds the run's lock."""
    path = run / LOCK
    try:
        with reading(path), open_checked(path) as lock:
            return is_locked(lock)
    except FileNotFoundError:
        return False


def stands(run: Path, summary: Summary) -> str:
    """Return the status of a run with this summary; `interrupted` also if a killed process could not write it."""
    status = "interrupted" if summary.status is None else summary.status
    return "interrupted" if status == "running" and not is_written(run) else status
