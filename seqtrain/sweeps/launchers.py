"""The local launcher: runs the trials of a sweep on this machine, n at a time, each in processes of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import pkgutil
import select
import signal
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from seqtrain.config.trust import trust_words
from seqtrain.distributed import ranks
from seqtrain.distributed.fork_server import Child, ForkServer
from seqtrain.errors import UserError
from seqtrain.sweeps.folder import ENDED, Sweep, Trial

# Imported once by the process that trials are forked from: together they take longer than a small trial.
HEAVY = ("torch", "pytorch_lightning", "hydra", "datasets", "tokenizers")
PLACE = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SEQTRAIN_MEET")
MEETING = ("MASTER_ADDR", "MASTER_PORT", "PL_")
# Variables, or beginnings of them, that tell a process of its place among others; a trial has a place of its own.
STEP = ("SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS")


class Runner(Protocol):
    """A runner of trials, as a sweeper needs it."""

    pulled: str  # what has become of a trial that it has pulled, in a word or two
    together: int | None  # most trials that it runs at a time; None: all

    @abstractmethod
    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """Run planned trials, pulled as there is room for them, and yield each one when it has ended."""


def environment(env: Mapping[str, str], *, apart: Sequence[str] = (*PLACE, *MEETING, *STEP)) -> dict[str, str]:
    """Return the environment of a trial: the sweep's, without the variables that place the sweep's own process.

    Args:
        env: the sweep's own environment.
        apart: names of variables, or their beginnings, that a trial must not inherit.
    """
    return {name: value for name, value in env.items() if not name.startswith(tuple(apart))}


class Local(Launcher):
    """A launcher that runs `n_jobs` trials at a time here, forked from a process that has imported everything once.

    Each has its share of the GPUs, and `threads` threads (None: OMP_NUM_THREADS, or its share of the cores).
    """

    pulled = "started"

    def __init__(self, *, n_jobs: int = 1, threads: int | None = None) -> None:
        for name, value in {"n_jobs": n_jobs, "threads": threads}.items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UserError(f"hydra.launcher.{name}={value}: expected a whole number above 0")
        self.n_jobs = self.together = n_jobs
        self.threads = threads
        self.say: Callable[[str], None] = print

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Set up the launcher; part of Hydra's interface. It runs nothing but trials."""
        self.sweep = Path(str(config.hydra.sweep.dir))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Launch jobs; part of Hydra's interface. The override run_dir=SWEEP/NNN of a job names its trial."""
        folder = Sweep.open(self.sweep)
        ended = self.run(map(folder.trial, _trial_numbers(job_overrides)))
        return [JobReturn(overrides=list(trial.overrides), status=_hydra_status(trial)) for trial in ended]

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """Run trials as in `Runner`. Interrupts are passed on to the trials, which save and exit."""
        threads, shares = self._threads(), gpu_shares(gpus(os.environ), self.n_jobs)
        self._say_shares(threads, shares)
        env = environment(os.environ)
        if threads is not None:
            env["OMP_NUM_THREADS"] = str(threads)
        running: dict[Child, tuple[int, Trial]] = {}
        free = set(range(self.n_jobs))  # slots, each with GPUs of its own
        own = [module.name for module in pkgutil.walk_packages([str(Path(__file__).parents[1])], "seqtrain.")]
        with ForkServer([*HEAVY, *own], env=env, begin=_how_to_begin()) as server:
            try:
                while True:
                    # Slots come first: a trial is pulled only where there is room, for a search draws it then.
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
        if shares[0]:  # all have GPUs, or none has
            each.append(f"GPUs {' | '.join(share['CUDA_VISIBLE_DEVICES'] for share in shares)}")
        words = f"{self.n_jobs} trials at a time"
        if each:
            words += f", each with {' and '.join(each)}"
        self.say(words)


def _how_to_begin() -> Literal["spawn", "fork"]:
    """Return how the trials' server starts: forking is fast, and safe without threads; a notebook has threads."""
    if threading.active_count() > 1 or "torch" in sys.modules:
        return "spawn"
    return "fork"


def _trial_numbers(job_overrides: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield the number of each job's trial, from its run_dir=SWEEP/NNN, which may be quoted."""
    for word in itertools.chain.from_iterable(job_overrides):
        if word.startswith("run_dir="):
            yield int(Path(word).name.strip("'"))


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
    """Return the environment of each slot: equally many GPUs for each, shared if there are fewer GPUs than slots."""
    if not devices:
        return [{}] * n_jobs
    each = max(len(devices) // n_jobs, 1)
    shares = []
    for slot in range(n_jobs):
        start = slot * each % len(devices)  # with fewer GPUs than slots several have the same one
        shares.append({"CUDA_VISIBLE_DEVICES": ",".join(devices[start : start + each])})
    return shares


def _after(trial: Trial, child: Child) -> Trial:
    """Return the trial after recording its end, if its process could not record it."""
    code = child.poll() or 0
    if trial.recorded not in (*ENDED, "interrupted"):
        trial.fail(_death(code, child.stderr))
    child.close()
    return trial


def _death(code: int, stderr: str) -> str:
    """Return why a process ended that could not record it itself."""
    if code < 0:
        return f"its process was {killed(code)}"
    lines = stderr.strip().splitlines()
    if lines:
        return lines[-1]  # of a traceback: the error itself
    return f"its process ended with {code}"


def killed(code: int) -> str:
    """Return the signal of a negative exit status, in words."""
    words = f"killed by {signal.Signals(-code).name}"
    if code == -signal.SIGKILL:  # which the kernel sends where there is no memory left
        words += " (the machine may have run out of memory)"
    return words


def _leave(running: Mapping[Child, Any], number: int) -> None:
    """Send a signal to the trials, wait for their checkpoints, and kill the processes that remain."""
    for child in running:
        child.kill(number)
    limit = time.monotonic() + ranks.ENDING  # of all together: they save at the same time
    try:
        for child in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(limit - time.monotonic(), 0))
    finally:
        # Also those that ended: processes of their own may have outlived them.
        for child in running:
            child.kill_group()
            child.close()


def _hydra_status(trial: Trial) -> JobStatus:
    if trial.status in ("finished", "pruned"):
        return JobStatus.COMPLETED
    return JobStatus.FAILED
