"""Launchers of Hydra that run the trials of a sweep: joblib, Submitit, or another one that is trusted."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from hydra._internal.callbacks import Callbacks
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig

from seqtrain.config.schema import first_lines
from seqtrain.distributed import ranks
from seqtrain.errors import UserError
from seqtrain.sweeps.folder import ENDED, STOP, Trial
from seqtrain.sweeps.launchers import MEETING, PLACE, STEP, environment
from seqtrain.sweeps.settings import quoted
from seqtrain.terminal import pasted

SUBMITIT = ".submitit"  # of a sweep: what Submitit writes, a folder for each attempt
JOB = re.compile(r"(\d+)(_\d+)?_submitted\.pkl")
LOOK = 5.0  # seconds between questions to SLURM


class HydraLauncher:
    """A runner that drives a launcher of Hydra, which runs `run_trial` anywhere; results are read from the disk."""

    pulled = "handed out"

    def __init__(self, launcher: Launcher, sweep: Path, say: Callable[[str], None], *, together: int | None) -> None:
        """Set the most trials that the launcher gets at once, `together`; None: all."""
        self.launcher = launcher
        self.sweep = sweep
        self.say = say
        self.together = together
        self._earlier = set(attempts(sweep))
        self._error: BaseException | None = None
        self._looked = 0.0

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """Run trials as in `Runner`. An interrupt of this process interrupts running trials and cancels the others."""
        while batch := list(itertools.islice(trials, self.together)):
            yield from self._batch(batch)

    def _batch(self, batch: list[Trial]) -> Iterator[Trial]:
        """Run some trials; yield each as soon as it has ended, and last those that have not ended."""
        launching = threading.Thread(target=self._launch, args=(batch,), daemon=True)
        launching.start()
        waiting = list(batch)
        try:
            while waiting:
                over = self._is_over(launching)
                ended = [trial for trial in waiting if over or trial.recorded in ENDED]
                if over and self._error is not None:
                    self._tell(batch)
                waiting = [trial for trial in waiting if trial not in ended]
                yield from ended
                time.sleep(0.1)
            if not self._jobs():  # the launcher is in this process, where two at once would share the globals of Hydra
                launching.join()
        except BaseException as error:
            self._leave(waiting, getattr(error, "number", signal.SIGTERM))
            if not self._jobs():  # cut off with its workers, joblib would complain behind our last word
                launching.join(ranks.ENDING)
            raise

    def _launch(self, batch: list[Trial]) -> None:
        try:
            self.launcher.launch([[f"run_dir={quoted(trial.path)}"] for trial in batch], batch[0].number)
        except BaseException as error:  # told by the thread that waits
            self._error = error

    def _is_over(self, launching: threading.Thread) -> bool:
        """Return True if nothing runs any more.

        SLURM is asked about its jobs, because their launcher exits at the first failure.
        """
        alive = launching.is_alive()  # first: it may hand in jobs and leave at any moment
        if not (jobs := self._jobs()):
            return not alive
        if time.monotonic() < self._looked + LOOK:
            return False
        self._looked = time.monotonic()
        return not queued(jobs)

    def _jobs(self) -> list[str]:
        """Return the jobs of this attempt."""
        return submitted(set(attempts(self.sweep)) - self._earlier)

    def _tell(self, batch: list[Trial]) -> None:
        """Log why the launcher gave up; raise UserError if it ran nothing."""
        line = f"hydra.launcher: {type(self._error).__name__}: {first_lines(cast(BaseException, self._error))}"
        if all(trial.recorded == "planned" for trial in batch):
            raise UserError(line)
        self.say(line)

    def _leave(self, waiting: list[Trial], number: int) -> None:
        """Stop running trials after they save, and cancel those that have not begun."""
        (self.sweep / STOP).touch()
        if jobs := self._jobs():
            again = pasted("seqtrain", "resume", self.sweep)
            self.say(f"cancelling {' '.join(jobs)}; `{again}` submits what is missing again")
            with contextlib.suppress(OSError):
                subprocess.run(["scancel", *jobs], capture_output=True, check=False)
        limit = time.monotonic() + ranks.ENDING
        for last in (False, True):
            for trial in waiting if not jobs else ():
                if _runs(trial) and (pid := trial.outcome.get("pid", 0)):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL if last else number)
            while time.monotonic() < limit and (queued(jobs) or any(map(_runs, waiting))):
                time.sleep(0.2)


def _runs(trial: Trial) -> bool:
    return trial.recorded == "running"


def attempts(sweep: Path) -> list[Path]:
    """Return the folders that Submitit wrote for the sweep, one for each attempt."""
    return [path for path in (sweep / SUBMITIT).glob("*") if path.is_dir()]


def submitted(folders: set[Path] | list[Path]) -> list[str]:
    """Return the jobs, or arrays of jobs, that Submitit handed to SLURM in these attempts."""
    names = [JOB.fullmatch(path.name) for folder in folders for path in folder.glob("*/*_submitted.pkl")]
    return sorted({found.group(1) for found in names if found})


def queued(jobs: Sequence[str]) -> str:
    """Return the jobs that wait or run, in SLURM's own words; empty without SLURM."""
    if not jobs:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ["squeue", "--noheader", "--format=%i", "--jobs", ",".join(jobs)]
        return " ".join(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.split())
    return ""


def run_trial(config: DictConfig, *, words: Sequence[str] = ()) -> int:
    """Run one trial for a launcher of Hydra: call `seqtrain trial` in a separate process.

    Under Submitit, this process catches SIGUSR2 (time is up) and has the job requeued, which sends SIGTERM to the job.
    """
    path = Path(config.run_dir)
    if (path.parent / STOP).exists():  # before a Python is started for nothing
        return 0
    submitit = "SUBMITIT_EXECUTOR" in os.environ
    apart = (*PLACE, *MEETING, *(() if submitit else STEP))  # the tasks of a job step are the processes of the trial
    command = [sys.executable, "-P", "-m", "seqtrain", "trial", str(path.parent), path.name, *words]
    env = environment(os.environ, apart=apart)
    if submitit:
        former = signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # sent to every process of the job; ours inherit this
        child = subprocess.Popen(command, env=env)
        signal.signal(signal.SIGUSR2, former)
    else:
        child = subprocess.Popen(command, env=env)
    parent = os.getppid()
    try:
        while child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1)
            if os.getppid() != parent:  # joblib's workers outlive who started them
                child.kill()
    except BaseException:  # the job is requeued, or given up
        child.terminate()
        child.wait(ranks.ENDING)
        raise
    if submitit and child.returncode > 128:
        os._exit(child.returncode)  # a result would say that the job is done, which goes on after it was requeued
    return child.returncode


def context(loader: Any) -> HydraContext:
    """Return the context in which launchers compose; no callbacks run."""
    return HydraContext(config_loader=loader, callbacks=cast(Any, Callbacks()))
