"""Runners of a sweep's trials: local, n at a time, or a Hydra launcher such as joblib or Submitit."""

from __future__ import annotations

import contextlib
import itertools
import os
import pkgutil
import re
import select
import signal
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from hydra.experimental.callback import Callback
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig

from seqtrain.config.schema import first_lines
from seqtrain.config.trust import trust_words
from seqtrain.distributed import ranks
from seqtrain.distributed.fork_server import Child, ForkServer
from seqtrain.errors import UserError
from seqtrain.sweeps.folder import ENDED, STOP, Trial
from seqtrain.sweeps.settings import quoted
from seqtrain.terminal import pasted

# Imported once by the process that trials are forked from: these imports take longer than a small trial.
HEAVY = ("torch", "pytorch_lightning", "hydra", "datasets", "tokenizers")
PLACE = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SEQTRAIN_MEET")
MEETING = ("MASTER_ADDR", "MASTER_PORT", "PL_")
# Prefixes of environment variables with the rank of a process; a trial has its own ranks.
STEP = ("SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS")


SUBMITIT = ".submitit"  # folder of a sweep that Submitit writes to, with a folder for each attempt
JOB = re.compile(r"(\d+)(_\d+)?_submitted\.pkl")
LOOK = 5.0  # seconds between two queries of SLURM


class Runner(Protocol):
    """A runner of trials, as a sweeper uses it."""

    pulled: str  # word for a trial that was taken from the iterator, such as "started"
    together: int | None  # maximum number of trials at a time; None: all

    @abstractmethod
    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """Run planned trials, taking each one when there is room for it, and yield each one when it has ended."""


def environment(env: Mapping[str, str], *, apart: Sequence[str] = (*PLACE, *MEETING, *STEP)) -> dict[str, str]:
    """Return the environment of a trial: the sweep's, without the variables that hold the rank of its process.

    Args:
        env: the sweep's own environment.
        apart: prefixes of variables that a trial must not inherit.
    """
    return {name: value for name, value in env.items() if not name.startswith(tuple(apart))}


class Local:
    """A runner of `n_jobs` local trials at a time, forked from a process that has imported everything once.

    Each trial has its share of the GPUs, and `threads` threads (None: OMP_NUM_THREADS, or its share of the cores).
    """

    pulled = "started"

    def __init__(self, *, n_jobs: int = 1, threads: int | None = None) -> None:
        if n_jobs < 1:  # in joblib, -1 means one for each core
            raise UserError(f"hydra.launcher.n_jobs={n_jobs}: expected a whole number above 0")
        self.n_jobs = self.together = n_jobs
        self.threads = threads
        self.say: Callable[[str], None] = print

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """Run trials as in `Runner`. An interrupt is forwarded to the trials, which save and exit."""
        threads, shares = self._threads(), gpu_shares(gpus(os.environ), self.n_jobs)
        self._say_shares(threads, shares)
        first = next(trials, None)
        if first is None:  # the imports take seconds, and a resumed sweep may have nothing to run
            return
        trials = itertools.chain([first], trials)
        env = environment(os.environ)
        if threads is not None:
            env["OMP_NUM_THREADS"] = str(threads)
        running: dict[Child, tuple[int, Trial]] = {}
        free = set(range(self.n_jobs))  # slots, each with GPUs of its own
        own = [module.name for module in pkgutil.walk_packages([str(Path(__file__).parents[1])], "seqtrain.")]
        with ForkServer([*HEAVY, *own], env=env) as server:
            try:
                while True:
                    # `zip` takes a free slot first, then a trial: a search must propose it only when there is room.
                    for slot, trial in zip(sorted(free), trials, strict=False):
                        words = trial_words(trial)
                        if threads is not None:
                            words.append(f"--threads={threads}")
                        child = server.popen(words, env=env | shares[slot])
                        running[child] = slot, trial
                        free.remove(slot)
                    if not running:
                        return
                    select.select(list(running), [], [])
                    for child in list(running):
                        if child.poll() is not None:
                            slot, trial = running.pop(child)
                            free.add(slot)
                            yield _after(trial, child)
            except BaseException as error:
                _leave(running, getattr(error, "number", signal.SIGTERM))
                raise

    def _threads(self) -> int | None:
        """Return the threads of each trial; None if torch decides."""
        if self.threads is not None or self.n_jobs == 1 or "OMP_NUM_THREADS" in os.environ:
            return self.threads
        return max(len(os.sched_getaffinity(0)) // self.n_jobs, 1)

    def _say_shares(self, threads: int | None, shares: list[dict[str, str]]) -> None:
        """Log the share of threads and GPUs that each of several trials has."""
        if self.n_jobs == 1:
            return
        each = []
        if threads is not None:
            each.append(f"{threads} thread{'s' * (threads > 1)}")
        if shares[0]:  # either all trials have GPUs or none
            each.append(f"GPUs {' | '.join(share['CUDA_VISIBLE_DEVICES'] for share in shares)}")
        words = f"{self.n_jobs} trials at a time"
        if each:
            words += f", each with {' and '.join(each)}"
        self.say(words)


def trial_words(trial: Trial) -> list[str]:
    """Return the hidden command that runs a trial."""
    return ["trial", str(trial.sweep), trial.name, *trust_words()]


def gpus(env: Mapping[str, str]) -> list[str]:
    """Return the GPUs that trials may use, by number or name, without asking torch."""
    if "CUDA_VISIBLE_DEVICES" in env:
        return [name for name in env["CUDA_VISIBLE_DEVICES"].split(",") if name.strip() not in ("", "-1")]
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return list(map(str, range(count)))


def gpu_shares(devices: Sequence[str], n_jobs: int) -> list[dict[str, str]]:
    """Return the environment of each slot: the same number of GPUs for each, shared if there are too few."""
    if not devices:
        return [{}] * n_jobs
    each = max(len(devices) // n_jobs, 1)
    shares = []
    for slot in range(n_jobs):
        start = slot * each % len(devices)  # with fewer GPUs than slots, several slots share one
        shares.append({"CUDA_VISIBLE_DEVICES": ",".join(devices[start : start + each])})
    return shares


def _after(trial: Trial, child: Child) -> Trial:
    """Record the trial's end if its process could not record it; return the trial."""
    code = child.poll() or 0
    if trial.recorded not in (*ENDED, "interrupted"):
        trial.fail(_death(code, child.stderr))
    child.close()
    return trial


def _death(code: int, stderr: str) -> str:
    """Return the reason why a process ended, if it could not record it itself."""
    if code < 0:
        return f"its process was {killed(code)}"
    lines = stderr.strip().splitlines()
    if lines:
        return lines[-1]  # the last line of a traceback is the error itself
    return f"its process ended with {code}"


def killed(code: int) -> str:
    """Return the signal of a negative exit status, in words."""
    words = f"killed by {signal.Signals(-code).name}"
    if code == -signal.SIGKILL:  # the kernel sends it when memory runs out
        words += " (the machine may have run out of memory)"
    return words


def _leave(running: Mapping[Child, Any], number: int) -> None:
    """Send a signal to the trials, wait for their checkpoints, and kill the processes that remain."""
    for child in running:
        child.kill(number)
    limit = time.monotonic() + ranks.ENDING  # for all together: they save at the same time
    try:
        for child in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(limit - time.monotonic(), 0))
    finally:
        # Also for trials that ended: their child processes may still run.
        for child in running:
            child.kill_group()
            child.close()


class HydraLauncher:
    """A runner that drives a Hydra launcher, which runs `run_trial` anywhere; results are read from the disk."""

    pulled = "handed out"

    def __init__(self, launcher: Launcher, sweep: Path, say: Callable[[str], None], *, together: int | None) -> None:
        """Store the options. `together` is the maximum number of trials that the launcher gets at once; None: all."""
        self.launcher = launcher
        self.sweep = sweep
        self.say = say
        self.together = together
        self._earlier = set(submitted(attempts(sweep)))  # jobs of earlier attempts and batches
        self._error: BaseException | None = None
        self._looked = 0.0

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """Run trials as in `Runner`. An interrupt of this process interrupts running trials and cancels the others."""
        while batch := list(itertools.islice(trials, self.together)):
            yield from self._batch(batch)

    def _batch(self, batch: list[Trial]) -> Iterator[Trial]:
        """Run some trials; yield each as soon as it has ended, and at the end those that have not ended."""
        launching = threading.Thread(target=self._launch, args=(batch,), daemon=True)
        launching.start()
        waiting = list(batch)
        try:
            while waiting:
                over = self._is_over(launching)
                ended = [trial for trial in waiting if over or trial.recorded in ENDED]
                if over and self._error is not None:
                    self._report_error(batch)
                waiting = [trial for trial in waiting if trial not in ended]
                yield from ended
                time.sleep(0.1)
            if not (jobs := self._jobs()):  # a launcher in this process: two at once would share Hydra's globals
                launching.join()
            self._earlier.update(jobs)
        except BaseException as error:
            self._leave(waiting, getattr(error, "number", signal.SIGTERM))
            if not self._jobs():  # otherwise joblib would print errors about its workers at the very end
                launching.join(ranks.ENDING)
            raise

    def _launch(self, batch: list[Trial]) -> None:
        try:
            self.launcher.launch([[f"run_dir={quoted(trial.path)}"] for trial in batch], batch[0].number)
        except BaseException as error:  # the waiting thread reports it
            self._error = error

    def _is_over(self, launching: threading.Thread) -> bool:
        """Return True if nothing runs any more.

        SLURM is asked about its jobs, because their launcher exits at the first failure.
        """
        alive = launching.is_alive()  # read first: the launcher may submit jobs and exit at any moment
        if not (jobs := self._jobs()):
            return not alive
        if time.monotonic() < self._looked + LOOK:
            return False
        self._looked = time.monotonic()
        return not queued(jobs)

    def _jobs(self) -> list[str]:
        """Return the jobs of the current batch; empty until they are submitted."""
        return [job for job in submitted(attempts(self.sweep)) if job not in self._earlier]

    def _report_error(self, batch: list[Trial]) -> None:
        """Log why the launcher gave up; raise UserError if it ran nothing."""
        line = f"hydra.launcher: {type(self._error).__name__}: {first_lines(cast(BaseException, self._error))}"
        if all(trial.recorded == "planned" for trial in batch):
            raise UserError(line)
        self.say(line)

    def _leave(self, waiting: list[Trial], number: int) -> None:
        """Let running trials save and stop, and cancel those that have not begun."""
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


def submitted(folders: list[Path]) -> list[str]:
    """Return the jobs, or arrays of jobs, that Submitit handed to SLURM in these attempts."""
    names = [JOB.fullmatch(path.name) for folder in folders for path in folder.glob("*/*_submitted.pkl")]
    return sorted({found.group(1) for found in names if found})


def queued(jobs: Sequence[str]) -> str:
    """Return the jobs that wait or run, as SLURM prints them: all if SLURM does not answer, none without SLURM."""
    if not jobs:
        return ""
    command = ["squeue", "--noheader", "--format=%i", "--jobs", ",".join(jobs)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return ""
    except subprocess.TimeoutExpired:
        return " ".join(jobs)
    has_no_answer = answer.returncode != 0 and "Invalid job id" not in answer.stderr  # an ended job has no valid id
    return " ".join(jobs if has_no_answer else answer.stdout.split())


def run_trial(config: DictConfig, *, words: Sequence[str] = ()) -> int:
    """Run one trial for a Hydra launcher: call `seqtrain trial` in a separate process.

    Under Submitit, this process catches SIGUSR2 (time is up) and has the job requeued, which sends SIGTERM to the job.
    """
    path = Path(config.run_dir)
    if (path.parent / STOP).exists():  # checked here to save starting Python
        return 0
    submitit = "SUBMITIT_EXECUTOR" in os.environ
    apart = (*PLACE, *MEETING, *(() if submitit else STEP))  # the tasks of a job step are the processes of the trial
    command = [sys.executable, "-P", "-m", "seqtrain", "trial", str(path.parent), path.name, *words]
    env = environment(os.environ, apart=apart)
    if submitit:
        former = signal.signal(
            signal.SIGUSR2, signal.SIG_IGN
        )  # SLURM sends it to every process of the job; the child inherits SIG_IGN
        child = subprocess.Popen(command, env=env)
        signal.signal(signal.SIGUSR2, former)
    else:
        child = subprocess.Popen(command, env=env)
    parent = os.getppid()
    try:
        while child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1)
            if os.getppid() != parent:  # joblib's workers outlive their parent
                child.kill()
    except BaseException:  # the job is requeued, or given up
        child.terminate()
        child.wait(ranks.ENDING)
        raise
    if submitit and child.returncode > 128:
        os._exit(child.returncode)  # a result would mark the job as done, but it continues after it is requeued
    return child.returncode


def context(loader: Any) -> HydraContext:
    """Return the context in which launchers compose; no callbacks run."""
    return HydraContext(config_loader=loader, callbacks=cast(Any, Callback()))
