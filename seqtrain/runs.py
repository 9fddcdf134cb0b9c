"""The run directory, which explains itself: write, read, list and name it."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Literal

import yaml

from seqtrain.faults import Fault, did_you_mean
from seqtrain.files import locked, plain_json, write_text
from seqtrain.safety import check_entries, read_export, read_summary, read_yaml

CONFIG, METRICS, SUMMARY, LOCK = "config.yaml", "metrics.jsonl", "summary.json", ".lock"
RESUMED = "resumed_from"
EXPORT = "config.json"  # of a folder that `seqtrain export` wrote
RUNNING = ("trainer", "logger", "callbacks", "run_dir", "dry_run")  # of a config: how it runs, not what
LONGEST = 1 << 20  # bytes of a line of metrics.jsonl
NOT_FINITE = ("nan", "inf", "-inf")  # what stands for these numbers in metrics.jsonl and summary.json


class Run:
    """One run: `config.yaml`, append-only `metrics.jsonl` (the truth), `summary.json`, checkpoints, samples, plots.

    Made by `Run.create` or `Run.open`. Only one process at a time writes it: see `claim`.
    """

    def __init__(self, path: Path, *, writes: bool = True, claimed: bool = False) -> None:
        """`writes`: false for all but one of several processes that train it; `claimed`: by the one that started us."""
        self.path = path
        self.writes = writes
        self.claimed = claimed
        self._metrics: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @classmethod
    def create(cls, path: Path | str, *, taken: Literal["refuse", "number"] = "refuse") -> Run:
        """A new run at `path`, which may exist only as an empty folder.

        A taken path raises Fault, or, with `taken="number"` (for generated names), goes on to `path-2`, `path-3`...
        Of several processes that ask for the same path at the same time exactly one gets it.
        """
        path, number = Path(path), 1
        while True:
            candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
            if _made(candidate):
                run = cls(candidate)
                run.claim()
                return run
            if taken == "refuse":
                if (path / CONFIG).exists():
                    raise Fault(f"run_dir={path} exists already; use `seqtrain resume {path}` or another run_dir")
                raise Fault(f"run_dir={path} exists already and is no empty folder; give another run_dir")
            number += 1

    @classmethod
    def open(cls, path: Path | str, *, export: Literal["refuse", "take"] = "refuse") -> Run:
        """The run at `path`, or what was exported of one, where that is enough.

        Fault when there is none, or when something in it leads outside or is no plain file.
        """
        path = Path(path)
        if not path.exists():
            others = [config.parent.name for config in path.parent.glob(f"*/{CONFIG}")]
            raise Fault(f"run {path} does not exist{did_you_mean(path.name, others)}")
        if export == "refuse" and cls(path).exported:
            raise Fault(f"{path} is an export: weights to use (predict, embed, search, init_from); give the run itself")
        if not (path / CONFIG).is_file() and not cls(path).exported:
            raise Fault(f"{path} is no run directory: it has no {CONFIG}")
        check_entries(path)
        return cls(path)

    def claim(self) -> None:
        """Makes this process the only one that writes the run, until it ends; Fault when another one does so.

        Taken by `append` and `resumed` too; call it first where the answer should come early.
        """
        if self._lock is not None or self.claimed or not self.writes:
            return
        self._lock = locked(self.path / LOCK)
        if self._lock is None:
            raise Fault(f"run {self.path} is being written by another process: wait for it or stop it")

    @property
    def exported(self) -> bool:
        """Whether this is what was exported of a run."""
        return not (self.path / CONFIG).exists() and (self.path / EXPORT).is_file()

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config of the run; Fault when it cannot be read."""
        return read_export(self.path / EXPORT)["config"] if self.exported else read_yaml(self.path / CONFIG)

    @functools.cached_property
    def identity(self) -> str:
        """A hash of what the run is: its config without what a resume may change."""
        kept = {name: value for name, value in self.config.items() if name not in RUNNING}
        kept["data"] = {name: value for name, value in kept["data"].items() if name != "workers"}
        return hashlib.blake2b(yaml.safe_dump(kept).encode(), digest_size=8).hexdigest()

    def write_config(self, config: str | dict[str, Any]) -> None:
        """Writes the config: YAML text, or plain values."""
        self.__dict__.pop("identity", None)  # of the config before
        if not self.writes:
            return
        text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        write_text(self.path / CONFIG, text)

    def append(self, record: dict[str, Any]) -> None:
        """Adds one line to metrics.jsonl and hands it to the operating system, so that a killed process keeps it.

        OSError when the disk is full; what was written before stays.
        """
        if not self.writes:
            return
        if self._metrics is None:
            self.claim()
            self._metrics = open(self.path / METRICS, "ab", buffering=0)  # noqa: SIM115 - kept open between records
        line = plain_json(record).encode() + b"\n"
        if self._metrics.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path / METRICS))

    def sync(self) -> None:
        """Brings what was appended to the disk: call it before a checkpoint that counts on these records is saved."""
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())

    def resumed(self, step: int) -> None:
        """Marks that the run goes on from `step`: what was recorded beyond it is overwritten from here on."""
        if not self.writes:
            return
        self.claim()
        path = self.path / METRICS
        if path.exists() and path.stat().st_size and not _ends_line(path):
            with open(path, "ab") as file:
                file.write(b"\n")  # a torn last line becomes a line of its own, which the reader skips
        self.append({RESUMED: step})

    def metrics(self) -> list[dict[str, Any]]:
        """The records that stand: without torn lines, and without what a later resume overwrote."""
        return [record for _, record in self.standing()]

    def standing(self) -> list[tuple[int, dict[str, Any]]]:
        """The records that stand, each with its place among all `records`, from 1."""
        found: list[tuple[int, dict[str, Any]]] = []
        for place, record in enumerate(self.records(), 1):
            if RESUMED in record:
                found = [(before, kept) for before, kept in found if kept.get("step", 0) <= record[RESUMED]]
            else:
                found.append((place, record))
        return found

    def records(self) -> Iterator[dict[str, Any]]:
        """Every whole line of metrics.jsonl, what a later resume overwrote and the marks of resumes among them."""
        path = self.path / METRICS
        if not path.exists():
            return
        with open(path, "rb") as file:
            for line in iter(lambda: file.readline(LONGEST), b""):
                if (record := _record(line)) is not None:
                    yield record

    @property
    def summary(self) -> dict[str, Any]:
        """What `write_summary` wrote; empty when there is none yet; Fault when it is damaged."""
        if self.exported:
            return _numbers(read_export(self.path / EXPORT)["summary"])
        path = self.path / SUMMARY
        return _numbers(read_summary(path)) if path.exists() else {}

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Writes summary.json, whole or not at all."""
        if not self.writes:
            return
        write_text(self.path / SUMMARY, plain_json(summary, indent=2) + "\n")

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints, made when it is not there."""
        return self._folder("checkpoints")

    @property
    def samples(self) -> Path:
        """The folder of samples, made when it is not there."""
        return self._folder("samples")

    @property
    def plots(self) -> Path:
        """The folder of plots, made when it is not there."""
        return self._folder("plots")

    def _folder(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder

    def close(self) -> None:
        """Closes the files and lets another process write."""
        for file in (self._metrics, self._lock):
            if file is not None:
                file.close()
        self._metrics = self._lock = None


def default_name(task: str, model: str) -> str:
    """A name for a new run, such as `2026-11-21_02-04-00_next_token_lstm`: sorts by time, holds no `=`."""
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S_") + re.sub(r"[^\w.-]+", "-", f"{task}_{model}")


def list_runs(root: Path | str) -> list[Run]:
    """Every run in `root` and in its folders, such as sweeps, in the order of their paths."""
    runs = []
    for folder, below, files in os.walk(root):
        below.sort()
        if CONFIG in files and METRICS in files:
            below.clear()
            runs.append(Run(Path(folder)))
    return runs


def is_written(run: Path) -> bool:
    """Whether a process of this machine holds the run's lock."""
    with contextlib.suppress(OSError), open(run / METRICS, "rb"):
        lock = locked(run / LOCK)
        if lock is None:
            return True
        lock.close()
    return False


def stands(run: Path, summary: dict[str, Any]) -> str:
    """The status of a run with this summary, also where a killed process could not write it: then `interrupted`."""
    status = str(summary.get("status", "interrupted"))
    return "interrupted" if status == "running" and not is_written(run) else status


def remove(path: Path) -> None:
    """Removes the directory of what was refused before it began, and outputs/ if it held nothing else."""
    shutil.rmtree(path)
    if path.parent == Path("outputs"):
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _made(path: Path) -> bool:
    """Whether this process, and no other, made the run directory `path`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            return False
        open(path / METRICS, "xb").close()  # "x": of two that saw an empty folder one fails here
    except FileExistsError:
        return False
    except OSError as error:
        raise Fault(f"run_dir={path} cannot be made: {error.strerror}; give another run_dir") from None
    return True


def _ends_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _record(line: bytes) -> dict[str, Any] | None:
    """The JSON object in `line`; None when it is torn or empty."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    sound = isinstance(record, dict) and all(isinstance(record.get(key, 0), int) for key in ("step", RESUMED))
    return _numbers(record) if sound else None


def _numbers(value: Any) -> Any:
    """`value` with the texts nan, inf and -inf turned back into numbers."""
    if isinstance(value, dict):
        return {key: _numbers(below) for key, below in value.items()}
    return float(value) if isinstance(value, str) and value in NOT_FINITE else value
