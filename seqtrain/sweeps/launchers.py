"""Runs the trials of a sweep on this machine, n at a time, each in processes of its own."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import select
import signal
import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from seqtrain.config.trust import trust_words
from seqtrain.distributed import ranks
from seqtrain.distributed.fork_server import Child, ForkServer
from seqtrain.errors import UserError
from seqtrain.sweeps.folder import ENDED, Sweep, Trial

HEAVY = ("torch", "pytorch_lightning", "hydra", "datasets", "tokenizers")
PLACE = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SEQTRAIN_MEET")
MEETING = ("MASTER_ADDR", "MASTER_PORT", "PL_")
STEP = ("SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS")
"""Variables, or beginnings of them, that tell a process of its place among others; a trial has a place of its own."""


class Runner(Protocol):
    """What a sweeper needs of a launcher."""

    pulled: str  # what has become of a trial that it has pulled, in a word or two
    together: int | None  # most trials that it runs at a time; None: all

    @abstractmethod
    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """Runs planned trials, pulled as there is room for them, and gives each back when it has ended."""


def environment(env: Mapping[str, str], *, apart: Sequence[str] = (*PLACE, *MEETING, *STEP)) -> dict[str, str]:
    """The environment of a trial: that of the sweep, but for where the sweep's own process stands."""
    return {name: value for name, value in env.items() if not name.startswith(tuple(apart))}


class Local(Launcher):
    """Runs `n_jobs` trials at a time on this machine, forked from a process that has imported everything once.

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
        """Hydra's own interface; a trial is all that it runs."""
        self.sweep = Path(str(config.hydra.sweep.dir))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's own interface: of each job, the override run_dir=SWEEP/NNN names the trial."""
        folder = Sweep.open(self.sweep)
        numbers = [int(Path(word).name.strip("'")) for job in job_overrides for word in job if word[:8] == "run_dir="]
        ended = list(self.run(folder.trial(number) for number in numbers))
        return [JobReturn(overrides=list(trial.overrides), status=_hydra_status(trial)) for trial in ended]

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """As Runner has it. What interrupts this process is passed on to the trials, which save and leave."""
        threads, shares = self._threads(), gpu_shares(gpus(os.environ), self.n_jobs)
        self._say_shares(threads, shares)
        env = environment(os.environ) | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
        running: dict[Child, tuple[int, Trial]] = {}
        own = [module.name for module in pkgutil.walk_packages([str(Path(__file__).parents[1])], "seqtrain.")]
        with ForkServer([*HEAVY, *own], env=env, begin="fork") as server:
            try:
                while True:
                    free = [slot for slot in range(self.n_jobs) if slot not in {slot for slot, _ in running.values()}]
                    for slot, trial in zip(free, trials, strict=False):
                        words = [
                            *trial_words(trial),
                            *(() if threads is None else (f"--threads={threads}",)),
                        ]
                        child = server.popen(words, env=env | shares[slot])
                        running[child] = slot, trial
                    if not running:
                        return
                    select.select(list(running), [], [])
                    for child in [child for child in running if child.poll() is not None]:
                        _, trial = running.pop(child)
                        yield _after(trial, child)
            except BaseException as error:
                _leave(running, getattr(error, "number", signal.SIGTERM))
                raise

    def _threads(self) -> int | None:
        """Threads of each trial, where that is not left to torch."""
        if self.threads is not None or self.n_jobs == 1 or "OMP_NUM_THREADS" in os.environ:
            return self.threads
        return max(len(os.sched_getaffinity(0)) // self.n_jobs, 1)

    def _say_shares(self, threads: int | None, shares: list[dict[str, str]]) -> None:
        parts = [] if threads is None else [f"{threads} thread{'s' * (threads > 1)}"]
        seen = [share["CUDA_VISIBLE_DEVICES"] for share in shares if share]
        parts += [f"GPUs {' | '.join(seen)}"] if seen else []
        if self.n_jobs > 1:
            self.say(f"{self.n_jobs} trials at a time{', each with ' * bool(parts)}{' and '.join(parts)}")


def trial_words(trial: Trial) -> list[str]:
    """The hidden command that runs a trial."""
    return ["trial", str(trial.sweep), trial.name, *trust_words()]


def gpus(env: Mapping[str, str]) -> list[str]:
    """The GPUs that trials may use, by number or name, without asking torch."""
    if "CUDA_VISIBLE_DEVICES" in env:
        return [name for name in env["CUDA_VISIBLE_DEVICES"].split(",") if name.strip() and name.strip() != "-1"]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def gpu_shares(devices: Sequence[str], n_jobs: int) -> list[dict[str, str]]:
    """The environment of each slot: all of its GPUs, as many as every slot can have; one for several if need be."""
    if not devices:
        return [{} for _ in range(n_jobs)]
    each = max(len(devices) // n_jobs, 1)
    starts = [slot * each % len(devices) for slot in range(n_jobs)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(devices[start : start + each])} for start in starts]


def _after(trial: Trial, child: Child) -> Trial:
    """The trial, with its end recorded where its process could not do so."""
    code = child.poll() or 0
    if trial.recorded not in (*ENDED, "interrupted"):
        last = (child.stderr.strip().splitlines() or [""])[-1]
        trial.fail(f"its process was {killed(code)}" if code < 0 else last or f"its process ended with {code}")
    child.close()
    return trial


def killed(code: int) -> str:
    """How a process ended that has this negative exit status."""
    memory = " (the machine may have run out of memory)" if code == -signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{memory}"


def _leave(running: Mapping[Child, Any], number: int) -> None:
    """Passes a signal on to the trials, waits for their checkpoints, and kills what is left of them."""
    for child in running:
        child.kill(number)
    limit = time.monotonic() + ranks.ENDING
    try:
        for child in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(limit - time.monotonic(), 0))
    finally:
        for child in running:
            child.kill_group()
            child.close()


def _hydra_status(trial: Trial) -> JobStatus:
    return JobStatus.COMPLETED if trial.status in ("finished", "pruned") else JobStatus.FAILED
