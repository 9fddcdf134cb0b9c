"""A sweep's directory: its request, its trials, and how each of them ended."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, cast, get_args

import yaml

from seqtrain.errors import Unavailable, UserError
from seqtrain.files import folders
from seqtrain.files.atomic import exists, listed, locked, plain_json, remove_temporary, write_text
from seqtrain.files.untrusted import is_word, read_json, read_yaml
from seqtrain.runs.directory import CONFIG, LOCK, Run, stands
from seqtrain.runs.summary import Summary
from seqtrain.terminal import pasted

ASKED, INDEX, TRIALS, LOGS = "sweep.yaml", "index.json", "trials", "logs"
CWD = "cwd"  # key of sweep.yaml: the working folder in which the sweep was started
STOP = ".stop"  # exists while an attempt is stopping: trials that a launcher starts then exit at once

Status = Literal["planned", "running", "finished", "failed", "refused", "pruned", "interrupted"]
# A resumed sweep does not run trials with these statuses again.
ENDED: tuple[Status, ...] = ("finished", "failed", "refused", "pruned")


def status_after(fault: UserError) -> Status:
    """Return the status of a trial that ended with this error: failed if something was unavailable, else refused."""
    return "failed" if isinstance(fault, Unavailable) else "refused"


@dataclass(frozen=True)
class Asked:
    """The request for a sweep, as typed."""

    overrides: tuple[str, ...]
    kind: Literal["grid", "optuna"] = "grid"
    config_dirs: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One run of a sweep; its number names its directory and never changes."""

    sweep: Path
    number: int
    overrides: tuple[str, ...]
    label: str  # what differs from other trials, such as "model=lstm seed=1"

    @property
    def name(self) -> str:
        """Number as written in paths; names sort correctly up to a thousand trials."""
        return f"{self.number:03d}"

    @property
    def path(self) -> Path:
        """Run directory; a refused trial has none."""
        return self.sweep / self.name

    @property
    def log(self) -> Path:
        """Path of the log file with the output of the trial's processes."""
        return self.sweep / LOGS / f"{self.name}.txt"

    @property
    def outcome(self) -> dict[str, Any]:
        """Record written by the trial's process: `status`, and `reason` if there is one."""
        return _record(self.sweep / TRIALS / f"{self.name}.json")

    @property
    def recorded(self) -> str | None:
        """Status written by the trial's process; None if it wrote none."""
        return self.outcome.get("status")

    @property
    def status(self) -> Status:
        """Current status, correct even if the trial's processes were killed."""
        if exists(self.path / CONFIG):
            return cast(Status, stands(self.path, Run(self.path).summary))
        recorded = self.recorded
        return (
            recorded if recorded in ("failed", "refused") else "planned"
        )  # otherwise its run was removed, and is trained again

    @property
    def reason(self) -> str:
        """Reason why the trial did not finish; empty if it finished or the reason is unknown."""
        known = Run(self.path).summary if exists(self.path / CONFIG) else Summary()
        outcome = {} if known.status == "finished" else self.outcome  # for a process that could not write the summary
        return known.reason or str(outcome.get("reason", ""))

    @property
    def unavailable(self) -> bool:
        """Return True if it failed because something was missing that may be there later: see `errors.Unavailable`."""
        return self.status == "failed" and self.outcome.get("unavailable") is True

    def conclude(self, status: Status, reason: str = "", *, pid: int = 0, unavailable: bool = False) -> None:
        """Record the trial's status; only the process that runs it calls this, with its `pid` while it runs."""
        record = {"overrides": self.overrides, "label": self.label, "status": status, "reason": reason, "pid": pid}
        record |= {"unavailable": True} if unavailable else {}
        write_text(self.sweep / TRIALS / f"{self.name}.json", plain_json(record, 1))

    def row(self) -> dict[str, Any]:
        """Return the trial's status as plain values."""
        return {
            "trial": self.name,
            "label": self.label,
            "status": self.status,
            "reason": self.reason,
            "overrides": list(self.overrides),
        }

    def fail(self, reason: str) -> None:
        """Record that the trial failed, for a process that could not do so itself."""
        if exists(self.path / CONFIG):
            Run(self.path).update_summary(status="failed", reason=reason)
        self.conclude("failed", reason)


class Sweep:
    """A sweep on disk. Only one process at a time plans and launches its trials: see `claim`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None

    @classmethod
    def create(cls, path: Path | str, asked: Asked) -> Sweep:
        """Create a sweep at `path` and claim it; the folder appears with its request already in it.

        `path` may be an empty folder, or one whose creation was killed.

        Raises:
            UserError: `path` is any other existing folder or file.
        """
        sweep = cls(Path(path))
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(asked).items()}
        plain[CWD] = os.getcwd()
        try:
            sweep._lock = folders.made(sweep.path, ASKED, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
            if sweep._lock is None:
                sweep._refuse_taken()
            sweep.prepare()
        except OSError as error:
            raise Unavailable(f"hydra.sweep.dir={path} cannot be made: {error.strerror}; give another one") from None
        return sweep

    def _refuse_taken(self) -> NoReturn:
        if is_sweep(self.path):
            again = pasted("seqtrain", "resume", self.path)
            raise UserError(f"hydra.sweep.dir={self.path} exists already; use `{again}` or another directory")
        raise UserError(f"hydra.sweep.dir={self.path} exists already and is not an empty folder; give another one")

    @classmethod
    def open(cls, path: Path | str) -> Sweep:
        """Return the sweep at `path`; raise UserError if there is none."""
        sweep = cls(Path(path))
        if not is_sweep(sweep.path):
            raise UserError(f"{path} is not a sweep: it has no {ASKED}")
        return sweep

    @functools.cached_property
    def asked(self) -> Asked:
        """Request for the sweep. Raises UserError if its file is damaged."""
        found = read_yaml(self.path / ASKED)
        lists = {name: found.get(name, []) for name in ("overrides", "config_dirs", "trust")}
        sound = all(isinstance(words, list) and all(map(is_word, words)) for words in lists.values())
        if not sound or found.get("kind") not in ("grid", "optuna"):
            raise UserError(f"{self.path / ASKED}: not in the form that a sweep writes")
        return Asked(kind=found["kind"], **{name: tuple(words) for name, words in lists.items()})

    def where_it_began(self, say: Callable[[str], None]) -> Sweep:
        """Change to the folder in which the sweep was started, so that relative paths are valid; return the sweep.

        If that folder is gone, the working folder stays the same, and `say` gets a line about it.
        """
        began = read_yaml(self.path / ASKED).get(CWD)
        if not isinstance(began, str) or "\0" in began:
            raise UserError(f"{self.path / ASKED}: does not name the folder where the sweep began; start a new sweep")
        path = self.path.absolute()
        try:
            if os.path.samefile(began, "."):
                return self
            os.chdir(began)
        except OSError as error:
            say(f"{began}, where the sweep was begun: {error.strerror}; relative paths start from {os.getcwd()}")
            return self
        say(f"relative paths start from {began}, where the sweep was begun")
        return Sweep(path)

    def plan(self, number: int, overrides: Sequence[str], label: str) -> Trial:
        """Plan a trial and return it; a trial that is already planned is not changed."""
        trial = Trial(self.path, number, tuple(overrides), label)
        if not trial.outcome:
            trial.conclude("planned")
        return trial

    def trial(self, number: int) -> Trial:
        """Return a planned trial; raise UserError if no trial has this number."""
        record = _record(self.path / TRIALS / f"{number:03d}.json")
        if not record:
            raise UserError(f"sweep {self.path}: no trial {number:03d}")
        return Trial(self.path, number, tuple(record["overrides"]), record["label"])

    def trials(self) -> list[Trial]:
        """Return all planned trials, by number."""
        return [self.trial(number) for number in sorted(int(path.stem) for path in _records(self.path))]

    def check_entries(self) -> None:
        """Raise UserError if a file or folder of the sweep is a link: writing would follow it."""
        for folder in (self.path, self.path / TRIALS, self.path / LOGS):
            for path in listed(folder):
                if path.is_symlink():
                    raise UserError(f"{path}: is a link, which a sweep never makes; replace it by its target")

    def write_index(self) -> None:
        """Rewrite index.json with the status of all trials."""
        rows = [trial.row() for trial in self.trials()]
        write_text(self.path / INDEX, plain_json({"trials": rows}, 1) + "\n")

    def prepare(self) -> None:
        """Make the sweep's folders and remove partial files of killed processes.

        Only the process that claimed the sweep calls this.
        """
        for folder in (self.path, self.path / TRIALS, self.path / LOGS):
            folder.mkdir(exist_ok=True)
            remove_temporary(folder)
        folders.remove_dead(self.path)

    def claim(self) -> None:
        """Make this process the only one that runs the sweep, until it ends; raise UserError if another one does."""
        self._lock = locked(self.path / LOCK)
        if self._lock is None:
            raise Unavailable(f"sweep {self.path} is being run by another process: wait for it or stop it")

    def close(self) -> None:
        """Release the sweep for other processes.

        A process that lives longer than the sweep, such as a notebook's, must not hold it.
        """
        if self._lock is not None:
            self._lock.close()
            self._lock = None


@dataclass(frozen=True)
class SweepMember:
    """The sweep and the trial of a run."""

    sweep: str  # name of the sweep's directory
    trial: str  # number of the trial, as in paths
    label: str  # what differs from other trials
    overrides: tuple[str, ...]


def member_of(run: Path) -> SweepMember | None:
    """Return the sweep that the run directory is a trial of, or None."""
    home = run.absolute().parent
    record = _record(home / TRIALS / f"{run.name}.json") if is_sweep(home) else {}
    return SweepMember(home.name, run.name, record["label"], tuple(record["overrides"])) if record else None


def is_sweep(path: Path) -> bool:
    """Return True if this is a sweep's directory."""
    return os.path.isdir(path) and exists(path / ASKED)


def _records(sweep: Path) -> list[Path]:
    records = listed(sweep / TRIALS, "*.json")
    return [path for path in records if path.stem.isdecimal() and path.stem.isascii()]


def _record(path: Path) -> dict[str, Any]:
    """Return the contents of trials/NNN.json; empty if there is none; raise UserError if it is damaged."""
    if not exists(path):
        return {}
    record = read_json(path)
    kinds = {"overrides": list, "label": str, "status": str, "reason": str}
    if not isinstance(record, dict) or any(type(record.get(name)) is not kind for name, kind in kinds.items()):
        raise UserError(f"{path}: not in the form that a sweep writes")
    if record["status"] not in get_args(Status) or not all(map(is_word, record["overrides"])):
        raise UserError(f"{path}: not in the form that a sweep writes")
    return record


def is_searched(run: Path) -> bool:
    """Return True if the run is a trial of a search."""
    return member_of(run) is not None and Sweep.open(run.absolute().parent).asked.kind == "optuna"
