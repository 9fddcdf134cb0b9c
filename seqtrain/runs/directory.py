"""Run directory: create, read, write and name it; find the runs of a folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import re
from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, Literal

import yaml

from seqtrain.errors import Unavailable, UserError, did_you_mean
from seqtrain.files import folders
from seqtrain.files.atomic import (
    exists,
    is_at,
    is_locked,
    listed,
    locked,
    plain_json,
    reading,
    remove_temporary,
    walked,
    write_text,
)
from seqtrain.files.checked import open_append, open_checked
from seqtrain.files.folders import LOCK
from seqtrain.files.untrusted import FILES, check_entries, read_export, read_yaml
from seqtrain.runs.identity import identity
from seqtrain.runs.summary import LONGEST, RESUMED, Summary, ends_line, parsed
from seqtrain.terminal import pasted, printable

CONFIG, METRICS, SUMMARY = "config.yaml", "metrics.jsonl", "summary.json"
EXPORT = "config.json"  # config of a folder that `seqtrain export` wrote


class Run:
    """One run: `config.yaml`, append-only `metrics.jsonl`, `summary.json`, checkpoints, samples, plots.

    docs/running.md, "What a run leaves", lists all files. If they differ, `metrics.jsonl` is right. Create a run by
    `Run.create` or `Run.open`. Only one process at a time writes a run, see `claim`.
    """

    def __init__(self, path: Path, *, writes: bool = True, claimed: bool = False) -> None:
        """Store the path. `writes`: False in all but one of several processes; `claimed`: the parent holds the lock."""
        self.path = path
        self.writes = writes
        self.claimed = claimed
        self._metrics: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._was_lost = False

    def __repr__(self) -> str:
        try:
            status = self.summary.status or "unknown"
        except (UserError, OSError):  # a debugger must be able to show any run
            status = "cannot be read"
        return f"Run({self.path}, status: {status})"

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        config: str | dict[str, Any] | None = None,
        taken: Literal["refuse", "number"] = "refuse",
    ) -> Run:
        """Create a run at `path`, which may exist only as an empty folder, together with its config.

        If several processes request the same path at the same time, exactly one gets it.

        Args:
            path: Run directory.
            config: YAML text, or plain values.
            taken: Action if the path is taken: `refuse` raises UserError; `number` (for generated names) tries
                `path-2`, `path-3`...
        """
        path, number, text = Path(path), 1, _yaml(config or {})
        while True:
            candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
            try:
                lock = folders.made(candidate, CONFIG, text)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise Unavailable(f"run {path}: the disk is full; make room, then start again") from None
                raise Unavailable(f"run_dir={path} cannot be made: {error.strerror}; give another run_dir") from None
            if lock is not None:
                run = cls(candidate)
                run._lock = lock
                return run
            if taken == "refuse":
                if exists(path / CONFIG):
                    raise UserError(
                        f"run_dir={path} exists already; use `{pasted('seqtrain', 'resume', path)}` or another run_dir"
                    )
                raise UserError(f"run_dir={path} exists already and is not an empty folder; give another run_dir")
            number += 1

    @classmethod
    def open(cls, path: Path | str, *, export: Literal["refuse", "take"] = "refuse") -> Run:
        """Open the run at `path`, or, with `export="take"`, an export of one.

        Raises:
            UserError: There is no run, or its directory contains a link to outside or other entries than plain files.
        """
        path = Path(path)
        if not exists(path):
            others = [near.name for near in listed(path.parent) if (near / CONFIG).is_file()]  # only for a hint
            raise Unavailable(f"run {path} does not exist{did_you_mean(path.name, others)}")
        if export == "refuse" and cls(path).exported:
            raise UserError(
                f"{path} is an export, which is only for predict, embed, search and init_from; give the run itself"
            )
        if not exists(path / CONFIG) and not cls(path).exported:
            killed = path.is_dir() and exists(path / LOCK) and folders.vacant(path)
            began = (
                f"; it has not begun: `{pasted('seqtrain', 'train', f'run_dir={path}')} ...` starts it"
                if killed
                else ""
            )
            raise UserError(f"{path} is not a run directory: it has no {CONFIG}{began}")
        check_entries(path)
        return cls(path)

    def claim(self) -> None:
        """Make this process the only writer of the run until it ends. Raises UserError if another process writes it.

        `append` and `resumed` call it too; call it first if the error should come early.
        """
        if self._lock is not None or self.claimed or not self.writes:
            return
        self._lock = locked(self.path / LOCK)
        if self._lock is None:
            raise Unavailable(f"run {self.path} is being written by another process: wait for it or stop it")

    def lost(self) -> bool:
        """Return True if the run's directory was removed or moved, so that writes of this process are lost.

        Writes to an open file still succeed then, and another run may have been created at the same path. A removed
        lock no longer excludes other writers.
        """
        held = {name: file for name, file in ((LOCK, self._lock), (METRICS, self._metrics)) if file is not None}
        return not all(is_at(file, self.path / name) for name, file in held.items()) if held else self._was_lost

    def _check_place(self) -> None:
        """Raise FileNotFoundError if the run's directory, or its lock, no longer exists."""
        if self.lost():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path / METRICS))

    @property
    def exported(self) -> bool:
        """True if this is an export of a run."""
        return not exists(self.path / CONFIG) and exists(self.path / EXPORT)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config of the run. Raises UserError if it cannot be read."""
        return read_export(self.path / EXPORT)["config"] if self.exported else read_yaml(self.path / CONFIG)

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the run, as stored in each of its checkpoints."""
        return identity(self.config, self.summary)

    def write_config(self, config: str | dict[str, Any]) -> None:
        """Write the config: YAML text, or plain values."""
        if not self.writes:
            return
        self._check_place()
        write_text(self.path / CONFIG, _yaml(config))

    def append(self, record: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl and pass it to the operating system, so that it survives a kill.

        Raises OSError if the disk is full, or the directory is gone; earlier lines are kept.
        """
        if not self.writes:
            return
        if self._metrics is None:
            self.claim()
            self._metrics = open_append(self.path / METRICS)  # kept open between records
        self._check_place()
        line = plain_json(record).encode() + b"\n"
        if self._metrics.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path / METRICS))

    def sync(self) -> None:
        """Flush appended records to the disk. Call it before saving a checkpoint that relies on these records.

        Raises OSError if that fails, or the directory is gone.
        """
        if self.writes:
            self._check_place()
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())

    def mark_resume(self, step: int) -> None:
        """Mark that the run continues from `step`: records beyond it are superseded from here on."""
        if not self.writes:
            return
        self.claim()
        path = self.path / METRICS
        if exists(path) and path.stat().st_size and not ends_line(path):
            with open_append(path) as file:
                file.write(b"\n")  # an incomplete last line becomes a separate line, which the reader skips
        self.append({RESUMED: step})

    def newest_step(self) -> int:
        """Return the step that the run has reached by its records: the largest one since the last resume."""
        reached = 0
        for record in self.records():
            reached = record[RESUMED] if RESUMED in record else max(reached, record.get("step", 0))
        return reached

    def metrics(self) -> list[dict[str, Any]]:
        """Return the valid records: without incomplete lines, and without those superseded by a later resume."""
        return [record for _, record in self.standing()]

    def standing(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the valid records, each with its number among all `records`, counted from 1."""
        found: list[tuple[int, dict[str, Any]]] = []
        earliest = math.inf  # smallest step of the resumes later in the file
        for place, record in reversed([*enumerate(self.records(), 1)]):
            if RESUMED in record:
                earliest = min(earliest, record[RESUMED])
            elif record.get("step", 0) <= earliest:
                found.append((place, record))
        return found[::-1]

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield every whole line of metrics.jsonl, including superseded records and the marks of resumes."""
        path = self.path / METRICS
        if not exists(path):
            return
        with reading(path), open_checked(path, FILES[METRICS]) as file:
            for line in iter(lambda: file.readline(LONGEST), b""):
                if (record := parsed(line)) is not None:
                    yield record

    @property
    def summary(self) -> Summary:
        """Current content of summary.json; empty if there is none yet. Raises UserError if it is damaged."""
        if self.exported:
            return Summary.from_plain(read_export(self.path / EXPORT)["summary"])
        path = self.path / SUMMARY
        return Summary.read(path) if exists(path) else Summary()

    def write_summary(self, summary: Summary) -> None:
        """Write summary.json atomically."""
        if not self.writes:
            return
        self._check_place()
        summary.write(self.path / SUMMARY)

    def update_summary(self, **entries: Any) -> None:
        """Set entries of summary.json; keep the others."""
        summary = self.summary
        summary.update(**entries)
        self.write_summary(summary)

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self._folder("checkpoints")

    @property
    def samples(self) -> Path:
        """Folder of samples."""
        return self._folder("samples")

    @property
    def plots(self) -> Path:
        """Folder of plots."""
        return self._folder("plots")

    def _folder(self, name: str) -> Path:
        """Return a folder of the run. If it does not exist, only the writer of the run creates it."""
        folder = self.path / name
        if self.writes and (self.claimed or self._lock is not None):
            folder.mkdir(exist_ok=True)
        return folder

    def probe(self) -> None:
        """Remove files left by killed writers, and write a file as a test. Raises OSError if that fails."""
        self.claim()
        for folder in (self.path, self.checkpoints, self.samples, self.plots):
            remove_temporary(folder)
        write_text(self.path / ".probe", "on trial")
        (self.path / ".probe").unlink()
        open_append(self.path / METRICS).close()

    def close(self) -> None:
        """Close the files and let another process write."""
        self._was_lost = self.lost()
        for file in (self._metrics, self._lock):
            if file is not None:
                file.close()
        self._metrics = self._lock = None


def default_name(task: str, model: str) -> str:
    """Return a name for a new run, such as `2026-11-21_02-04-00_next_token_lstm`: it sorts by time and has no `=`."""
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S_") + re.sub(r"[^\w.-]+", "-", f"{task}_{model}")


def remove(path: Path) -> None:
    """Remove the directory of a run that was refused before it began, and outputs/ if it is then empty."""
    folders.remove(path)
    if path.parent == Path("outputs"):
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _yaml(config: str | dict[str, Any]) -> str:
    return config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


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
