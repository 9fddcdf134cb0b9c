"""A search: an Optuna sampler proposes each trial from the results of the earlier ones."""

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
    """The sweeper of a search: it asks the sweep's study for up to `n_trials` trials, and reports their results to it.

    A trial has the same number in the study and in its directory. Its proposal is a function of `seed`, this number and
    the results in the study at that moment, so a killed search continues as if it had not been killed.
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
        """Store the options; `params` is the search space, which the command line overrides. Defaults are in conf/."""
        self.n_trials = n_trials
        self.seed = seed
        self.sampler = sampler
        self.pruner = pruner
        self.wanted = objectives
        self.storage = storage
        self.params = params
        studies.sampler(sampler, seed)  # errors in these two are reported first
        studies.pruner(pruner)

    @property
    def total(self) -> int:
        """Number of trials of the search."""
        return self.n_trials

    def plan(self, words: Sequence[str]) -> None:
        """Read the space and open the study.

        Raises:
            UserError: the space is empty, or no corner of it is a valid run.
        """
        if self.attempt.retry_failed and not any(trial.unavailable for trial in self.folder.trials()):
            raise UserError("--retry-failed: a search does not repeat trials; set hydra.sweeper.n_trials=N to run more")
        self._unlucky = False
        self.space, self.fixed = space(self.params, words)
        if not self.space:
            raise UserError(f"sweep=optuna: there is nothing to search; add a range, such as {EXAMPLE}")
        corner = self._corner([Path(folder) for folder in self.folder.asked.config_dirs])
        self.objectives = self._objectives(corner)
        if len(self.objectives) > 1 or self.objectives[0].metric is None:
            self.attempt.say("no trial is pruned: validations do not measure these objectives")
            self.pruner = {"_target_": "optuna.pruners.NopPruner"}
        self.study = studies.begin(self.folder.path, self.objectives, self.pruner, self.storage)
        planned = len(self.folder.trials())
        if planned > len(self.study.get_trials(deepcopy=False)):
            raise UserError(
                f"sweep {self.folder.path}: its study has fewer trials than its folder ({planned}); restore "
                f"{studies.STUDY}, or give hydra.sweeper.storage= as before"
            )
        if not planned and 1 < self.n_trials <= (self.attempt.runner.together or self.n_trials):
            fewer = "reduce hydra.launcher.n_jobs, or hydra.launcher.array_parallelism under SLURM"
            self.attempt.say(f"all {self.n_trials} trials run at once, so none learns from another; {fewer}")

    def trials(self) -> Iterator[Trial]:
        """Yield the trials that the study still waits for, then new ones, each requested when there is room for it.

        No trial is requested once something was unavailable to a trial: the next trial would need it, too.
        """
        for number in self._waiting():
            trial = self._planned(number)
            again = trial.unavailable and self.attempt.retry_failed
            if trial.status in ENDED and not again:  # the sweep was killed before it reported the result
                self.told(trial)
                self.folder.write_index()
            else:
                yield trial
        while len(self.study.get_trials(deepcopy=False)) < self.n_trials and not self._unlucky:
            trial = self._planned(self._ask())
            self.folder.write_index()
            yield trial

    def told(self, trial: Trial) -> None:
        """Report the trial's result to the study.

        A trial that was interrupted, or will be retried, continues later under the same number.
        """
        with studies.opening(self.folder.path):  # it may have been removed in the meantime
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
            self.attempt.say(f"trial {trial.name}: its summary lacks {error}, so the study counts it as failed")
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
        """Yield the best trial or, for several objectives, the trials on the Pareto front."""
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
        """Return the config of the first corner of the space that composes; raise UserError if none does."""
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

        Each parameter has its own random numbers: a search that was killed between two of them draws the same ones.
        """
        self.study.sampler = self._sampler(trial.number)
        trial.relative_params  # noqa: B018 - draws the parameters that the sampler draws jointly
        for place, (name, kind) in enumerate(self.space.items()):
            self.study.sampler = self._sampler(trial.number, place)
            trial._suggest(name, kind)
        return trial.number

    def _sampler(self, *place: int) -> Any:
        import numpy as np

        return studies.sampler(self.sampler, int(np.random.default_rng([self.seed, *place]).integers(2**32)))

    def _waiting(self) -> list[int]:
        """Return the trials that the study has started and has no result for."""
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


# -- the space, from the command line and the files of conf/sweep ------------------------------------------------------


def space(params: Mapping[str, Any], words: Sequence[str]) -> tuple[dict[str, BaseDistribution], list[str]]:
    """Return the searched distributions by key, and the overrides that all trials share.

    An override replaces the entry of its key in `params`; `~key` removes a key of `params` from the space.

    Raises:
        UserError: an override cannot be parsed.
    """
    given = {str(key): _parsed(f"{key}={value}") for key, value in params.items()}
    # The command line comes after the file: the last override of a key counts, and a new key is searched last.
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
    """Return the distribution for a choice, a range or an interval, made by Hydra's own sweeper for Optuna."""
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
    """Return a value as it is shown in a label."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return show(value)
