"""A search: a sampler of Optuna proposes each trial from the results of the earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from seqtrain.config import check
from seqtrain.config.conf_files import parsed
from seqtrain.config.schema import first_lines, show
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps import study as studies
from seqtrain.sweeps.folder import ENDED, Trial
from seqtrain.sweeps.study import Objective
from seqtrain.sweeps.sweeper import Sweeper
from seqtrain.terminal import pasted

if TYPE_CHECKING:
    import optuna
    from omegaconf import DictConfig
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

EXAMPLE = "optimizer.lr='tag(log,interval(1e-4,1e-1))'"


class Search(Sweeper):
    """The sweeper of a search: gets trials from the sweep's study up to `n_trials`, and tells it how each one ended.

    A trial has the same number in the study and in its directory. Its proposal is a function of `seed`, this number and
    the results the study has at that moment, so a search that was killed continues as if it had not been.
    """

    def __init__(
        self,
        *,
        n_trials: int,
        seed: int,
        sampler: Mapping[str, Any],
        pruner: Mapping[str, Any],
        objectives: Sequence[str] | None,
        storage: str | None,
        params: Mapping[str, Any],
    ) -> None:
        """Set the search and `params`, its space, which the command line overrides; defaults stand in conf/."""
        self.n_trials = n_trials
        self.seed = seed
        self.sampler = sampler
        self.pruner = pruner
        self.wanted = objectives
        self.storage = storage
        self.params = params
        studies.sampler(sampler, seed)  # the faults of these two come first
        studies.pruner(pruner)

    @property
    def total(self) -> int:
        """Number of trials of the search."""
        return self.n_trials

    def plan(self, words: Sequence[str]) -> None:
        """Read the space and open the study.

        Raises:
            UserError: there is nothing to search, or no corner of the space is a valid run.
        """
        if self.attempt.retry_failed and not any(trial.unavailable for trial in self.folder.trials()):
            raise UserError("--retry-failed: a search does not ask twice; hydra.sweeper.n_trials=N asks for others")
        self._unlucky = False
        self.space, self.fixed = space(self.params, words)
        if not self.space:
            raise UserError(f"sweep=optuna: there is nothing to search; add a range, such as {EXAMPLE}")
        corner = self._corner([Path(folder) for folder in self.folder.asked.config_dirs])
        self.objectives = self._objectives(corner)
        if len(self.objectives) > 1 or self.objectives[0].metric is None:
            self.attempt.say("no trial is pruned: no validation says which one is behind in these objectives")
            self.pruner = {"_target_": "optuna.pruners.NopPruner"}
        self.study = studies.begin(self.folder.path, self.objectives, self.pruner, self.storage)
        planned = len(self.folder.trials())
        if planned > len(self.study.get_trials(deepcopy=False)):
            raise UserError(
                f"sweep {self.folder.path}: its study knows fewer than the {planned} trials that are there; put "
                f"{studies.STUDY} back, or give hydra.sweeper.storage= as before"
            )
        if not planned and 1 < self.n_trials <= (self.attempt.runner.together or self.n_trials):
            fewer = "hydra.launcher.n_jobs=, under SLURM hydra.launcher.array_parallelism=, lets fewer run"
            self.attempt.say(f"all {self.n_trials} trials run at a time, so that none learns from another; {fewer}")

    def trials(self) -> Iterator[Trial]:
        """Yield the trials that the study still waits for, then new ones, each requested when there is room for it.

        No trial is requested after one has found that something is unavailable: the next would need it, too.
        """
        for number in self._waiting():
            trial = self._planned(number)
            again = trial.unavailable and self.attempt.retry_failed
            if trial.status in ENDED and not again:  # the sweep was killed before it could tell
                self.told(trial)
                self.folder.write_index()
            else:
                yield trial
        while len(self.study.get_trials(deepcopy=False)) < self.n_trials and not self._unlucky:
            trial = self._planned(self._ask())
            self.folder.write_index()
            yield trial

    def told(self, trial: Trial) -> None:
        """Tell the study the trial's result.

        A trial that was interrupted, or is to be tried again, continues later under the same number.
        """
        with studies.opening(self.folder.path):  # somebody may have removed it meanwhile
            self._tell(trial)

    def _tell(self, trial: Trial) -> None:
        from optuna.trial import TrialState

        status = trial.status
        self._unlucky |= trial.unavailable
        if status not in ENDED or trial.unavailable:
            return
        try:
            values = self._values(trial) if status == "finished" else None
        except (KeyError, TypeError, ValueError) as error:
            values, status = None, "failed"
            self.attempt.say(f"trial {trial.name}: its summary does not tell {error}, so the study counts it as failed")
        if values is not None:
            self.study.tell(trial.number, values)
        elif status == "pruned":
            self.study.tell(trial.number, state=TrialState.PRUNED)
        else:
            self.study._storage.set_trial_user_attr(self._asked(trial.number)._trial_id, status, trial.reason)
            self.study.tell(trial.number, state=TrialState.FAIL)

    def sweep(self, arguments: Sequence[str]) -> list[Trial]:
        """Run the search; log the best result as a command line at the end."""
        ended = super().sweep(arguments)
        for line in self.best():
            self.attempt.say(line)
        return ended

    def best(self) -> Iterator[str]:
        """Yield the best trial or, for several objectives, all trials that no other one beats in each of them."""
        from optuna.trial import TrialState

        if not self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            return
        several = len(self.objectives) > 1
        kind = "Pareto front" if several else "best"
        front = self.study.best_trials if several else [self.study.best_trial]
        for found in front:
            pairs = zip(self.objectives, found.values, strict=True)
            values = ", ".join(f"{objective.name} {value:.6g}" for objective, value in pairs)
            words = pasted(*self.folder.trial(found.number).overrides)
            yield f"{kind}: trial {found.number:03d}, {values}: seqtrain train {words}"

    def _objectives(self, corner: DictConfig) -> list[Objective]:
        """Return the objectives, checked against the task that all trials share."""
        from seqtrain.training.model_and_task import task_class

        task = task_class(corner)
        if self.wanted is None:
            return [Objective.read(f"best/{task.monitor}", task.metrics)]
        if not self.wanted or len(set(self.wanted)) < len(self.wanted):
            raise UserError(f"hydra.sweeper.objectives={show(list(self.wanted))}: name one or more, each once")
        return [Objective.read(name, task.metrics) for name in self.wanted]

    def _corner(self, folders: list[Path]) -> Any:
        """Return the configuration of the first corner of the space that composes; raise UserError if none does."""
        if "task" in self.space:
            raise UserError("task: a search compares runs of one task; name one")
        faults = []
        for side in (0, -1):
            words = [f"{name}={show(ends(kind)[side])}" for name, kind in self.space.items()]
            try:
                return check.compose([*self.fixed, *words], folders).config
            except UserError as fault:
                faults.append(fault)
        raise faults[0]

    def _ask(self) -> int:
        """Request another trial from the study; return its number."""
        with studies.opening(self.folder.path):
            self.study.sampler = self._sampler(len(self.study.get_trials(deepcopy=False)))
            return self._drawn(self.study.ask())

    def _drawn(self, trial: optuna.Trial) -> int:
        """Draw the parameters that a trial lacks; return its number.

        Each is drawn with random numbers of its own: after a kill between two of them, the search draws the same ones.
        """
        self.study.sampler = self._sampler(trial.number)
        trial.relative_params  # noqa: B018 - those that the sampler draws together are drawn here
        for place, (name, kind) in enumerate(self.space.items()):
            self.study.sampler = self._sampler(trial.number, place)
            trial._suggest(name, kind)
        return trial.number

    def _sampler(self, *place: int) -> Any:
        import numpy as np

        return studies.sampler(self.sampler, int(np.random.default_rng([self.seed, *place]).integers(2**32)))

    def _waiting(self) -> list[int]:
        """Return the trials that the study has started but whose end it was not told."""
        return [found.number for found in self.study.get_trials(deepcopy=False) if not found.state.is_finished()]

    def _planned(self, number: int) -> Trial:
        """Return the trial of this number in its directory, with its parameters from the study."""
        with studies.opening(self.folder.path):
            params = self._params(number)
        words = [f"{name}={show(value)}" for name, value in params.items()]
        label = " ".join(f"{name}={short(value)}" for name, value in params.items())
        return self.folder.plan(number, [*self.fixed, *words], label)

    def _params(self, number: int) -> dict[str, Any]:
        """Return the study's parameters of a trial; draw missing ones if the search was killed while drawing."""
        import optuna

        found = self._asked(number)
        if self.space.keys() - found.params.keys():
            self.study.sampler = self._sampler(number)
            self._drawn(optuna.trial.Trial(self.study, found._trial_id))
            found = self._asked(number)
        return found.params

    def _asked(self, number: int) -> FrozenTrial:
        """Return the study's current record of a trial."""
        return self.study.get_trials(deepcopy=False)[number]

    def _values(self, trial: Trial) -> list[float]:
        summary = Run(trial.path).summary
        return [objective.value(summary) for objective in self.objectives]


# -- the space, from the words of a command line and the files of conf/sweep -------------------------------------------


def space(params: Mapping[str, Any], words: Sequence[str]) -> tuple[dict[str, BaseDistribution], list[str]]:
    """Return the searched distributions by key, and the words that all trials share.

    A word replaces the entry of its key in `params`; `~key` removes a key of `params` from the space.

    Raises:
        UserError: a word cannot be read.
    """
    given = {str(key): _parsed(f"{key}={value}") for key, value in params.items()}
    # Words come after the file's keys: the last word about a key counts, and a new key is searched last.
    for text in words:
        override = _parsed(text)
        if override.is_delete() and override.key_or_group in given:
            del given[override.key_or_group]
        else:
            given[override.key_or_group] = override
    swept: dict[str, BaseDistribution] = {}
    fixed = []
    for override in given.values():
        if override.is_sweep_override():
            swept[override.get_key_element()] = _distribution(override)
        else:
            fixed.append(str(override.input_line))
    return swept, fixed


def _parsed(text: str) -> Override:
    try:
        return parsed(text)
    except HydraException as error:
        raise UserError(f"{text}: not of the form key=value: {first_lines(error)}") from None


def _distribution(override: Override) -> BaseDistribution:
    """Return the distribution that Hydra's own sweeper for Optuna makes of a choice, a range or an interval."""
    studies.import_optuna()
    try:
        from hydra_plugins.hydra_optuna_sweeper._impl import create_optuna_distribution_from_override as distribution
    except ImportError:
        raise UserError("sweep=optuna: needs hydra-optuna-sweeper: pip install 'seqtrain[sweep]'") from None
    try:
        return distribution(override)
    except (AssertionError, NotImplementedError, ValueError) as error:
        raise UserError(f"{override.input_line}: no space to search: {first_lines(error)}; see {EXAMPLE}") from None


def ends(kind: Any) -> tuple[Any, Any]:
    """Return the first and the last value of a distribution."""
    from optuna.distributions import CategoricalDistribution

    if isinstance(kind, CategoricalDistribution):
        return kind.choices[0], kind.choices[-1]
    return kind.low, kind.high


def short(value: Any) -> str:
    """Return a value as it is written in a label."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return show(value)
