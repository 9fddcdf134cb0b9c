"""The loop that a grid and a search share: trials are planned, checked, run and reported."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.plugins.sweeper import Sweeper as HydraSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from seqtrain.config import check
from seqtrain.errors import Unavailable, UserError
from seqtrain.runs import measures
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.folder import ENDED, Sweep, Trial, status_after

if TYPE_CHECKING:
    from seqtrain.sweeps.launchers import Runner

NUMBERED = "a trial's directory is its number; set the sweep's directory with hydra.sweep.dir="
# Keys of a run that a sweep sets itself.
NOT_SWEPT = {
    "run_dir": NUMBERED,
    "output_dir": NUMBERED,  # the name in other libraries
    "dry_run": "use --dry-run",
}


@dataclass(frozen=True)
class SweepAttempt:
    """The arguments that a command gives the sweeper of a sweep, besides its folder."""

    runner: Runner  # takes an iterator of trials, and yields each one when it has ended
    retry_failed: bool = False  # also refused ones: files, packages and this program may have changed
    say: Callable[[str], None] = print


class Sweeper(HydraSweeper):
    """A sweeper that runs the trials of `trials`; a subclass chooses them, and may learn from those that ended.

    `folder`, from `hydra.sweep.dir`, is the sweep on disk; `attempt` is set by the command before `sweep`.
    """

    folder: Sweep
    attempt: SweepAttempt

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Set up the sweeper; part of Hydra's interface. `config.hydra.sweep.dir` must be a sweep already."""
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = None  # the attempt has it
        self.folder = Sweep.open(config.hydra.sweep.dir)

    @property
    @abstractmethod
    def total(self) -> int | None:
        """Number of trials of the sweep, if it is known."""

    @abstractmethod
    def plan(self, words: Sequence[str]) -> None:
        """Read the request, as typed, once before `trials`; raise UserError if it is not a valid sweep."""

    @abstractmethod
    def trials(self) -> Iterator[Trial]:
        """Yield the trials, each planned with `self.folder.plan`, including those of earlier attempts.

        The runner takes each one when there is room for it, so that a search can use all earlier results.
        """

    def told(self, trial: Trial) -> None:
        """Handle a trial that ended in this attempt; its status is `trial.status`, its run `Run(trial.path)`."""

    def sweep(self, arguments: Sequence[str]) -> list[Trial]:
        """Run missing and unfinished trials; return the trials that ended in this attempt."""
        self.plan(arguments)
        self._ended: list[Trial] = []
        self._begun: dict[int, float] = {}
        for trial in self.attempt.runner.run(self._missing()):
            self._conclude(trial)
        return self._ended

    def _missing(self) -> Iterator[Trial]:
        """Yield the trials to run now; refuse a trial with an invalid config at once."""
        left = ("finished", "pruned") if self.attempt.retry_failed else ENDED
        for trial in self.trials():
            if trial.status in left:
                continue
            try:
                self._check(trial)
            except UserError as fault:
                unavailable = isinstance(fault, Unavailable)
                trial.conclude(status_after(fault), "; ".join(fault.lines), unavailable=unavailable)
                self._conclude(trial)
                continue
            self._begun[trial.number] = time.monotonic()
            trial.conclude("planned")  # replaces the record of an earlier attempt
            self.attempt.say(f"{self._name(trial)}: {self.attempt.runner.pulled}, log: {trial.log}")
            yield trial

    def _check(self, trial: Trial) -> None:
        """Check the trial's own config without importing its targets; raise UserError for an error in it."""
        for word in trial.overrides:
            key = check.key_of(word)
            if key in NOT_SWEPT:
                raise UserError(f"{word}: {NOT_SWEPT[key]}")
        for word in trial.label.split():
            if check.group_of(word) == "logger":
                raise UserError(f"{word}: a logger cannot be swept, since it does not change a run; give it one value")
        folders = [Path(folder) for folder in self.folder.asked.config_dirs]
        check.compose(trial.overrides, folders)

    def _conclude(self, trial: Trial) -> None:
        self._ended.append(trial)
        seconds = time.monotonic() - self._begun.get(trial.number, time.monotonic())
        self.attempt.say(f"{self._name(trial)}: {_ending(trial, seconds)}")
        self.told(trial)
        self.folder.write_index()

    def _name(self, trial: Trial) -> str:
        of = "" if self.total is None else f" of {self.total}"
        return f"trial {trial.name}{of} {trial.label}".rstrip()


def _ending(trial: Trial, seconds: float) -> str:
    """Return how a trial ended, in words."""
    status, reason = trial.status, trial.reason
    if status == "refused":
        return f"refused: {reason}"
    words = f"{status} in {seconds:.0f} s"
    if reason:
        return f"{words}: {reason}"
    summary = Run(trial.path).summary if trial.path.exists() else Summary()
    metrics, name = summary.metrics.get("validation", {}), measures.compared_by(summary)
    return f"{words}, validation {name} {metrics[name]:.4g}" if name in metrics else words
