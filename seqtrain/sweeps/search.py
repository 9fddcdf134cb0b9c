"""A search: each trial is proposed by a sampler of Optuna that knows how the earlier ones ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from seqtrain import check
from seqtrain.faults import Fault
from seqtrain.runs import Run
from seqtrain.schema import first_lines, show
from seqtrain.sweeps import study as studies
from seqtrain.sweeps.folder import ENDED, Trial
from seqtrain.sweeps.study import Objective
from seqtrain.sweeps.sweeper import Sweeper

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

EXAMPLE = "optimizer.lr='tag(log,interval(1e-4,1e-1))'"


class Search(Sweeper):
    """Asks the sweep's study for trials until there are `n_trials`, and tells it how each of them ended.

    The trial's number in the study is that of its directory. What is proposed for it is a function of `seed`, this
    number and what the study knows then: a search that was killed goes on as if it had not been.
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
        """`params`: the space, as on the command line, which wins; the others as in conf/hydra/sweeper/optuna.yaml."""
        if type(n_trials) is not int or n_trials < 1:
            raise Fault(f"hydra.sweeper.n_trials={n_trials}: expected a whole number above 0")
        if type(seed) is not int or seed < 0:
            raise Fault(f"hydra.sweeper.seed={seed}: expected a whole number from 0")
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
        """How many trials there are to be."""
        return self.n_trials

    def plan(self, words: Sequence[str]) -> None:
        """Reads the space and opens the study; Fault where there is nothing to search, or where no corner is a run."""
        if self.sitting.retry_failed:
            raise Fault("--retry-failed: a search does not ask twice; hydra.sweeper.n_trials=N asks for others")
        self.space, self.fixed = space(self.params, words)
        if not self.space:
            raise Fault(f"sweep=optuna: there is nothing to search; add a range, such as {EXAMPLE}")
        self.objectives = self._objectives()
        if len(self.objectives) > 1 or self.objectives[0].metric is None:
            self.sitting.say("no trial is pruned: no validation says which one is behind in these objectives")
            self.pruner = {"_target_": "optuna.pruners.NopPruner"}
        self.study = studies.begin(self.folder.path, self.objectives, self.pruner, self.storage)
        planned = len(self.folder.trials())
        if planned > len(self.study.get_trials(deepcopy=False)):
            raise Fault(
                f"sweep {self.folder.path}: its study knows fewer than the {planned} trials that are there; put "
                f"{studies.STUDY} back, or give hydra.sweeper.storage= as before"
            )

    def trials(self) -> Iterator[Trial]:
        """First what the study still waits for, then new ones, each asked for when there is room for it."""
        for number in self._waiting():
            trial = self._planned(number)
            if trial.status in ENDED:  # the sweep was killed before it could tell
                self.told(trial)
            else:
                yield trial
        while len(self.study.get_trials(deepcopy=False)) < self.n_trials:
            yield self._planned(self._ask())

    def told(self, trial: Trial) -> None:
        """Tells the study; one that was interrupted goes on later, under the same number."""
        from optuna.trial import TrialState

        status = trial.status
        if status not in ENDED:
            return
        try:
            values = self._values(trial) if status == "finished" else None
        except (KeyError, TypeError, ValueError) as error:
            values, status = None, "failed"
            self.sitting.say(f"trial {trial.name}: its summary does not tell {error}, so the study counts it as failed")
        if values is not None:
            self.study.tell(trial.number, values)
        elif status == "pruned":
            self.study.tell(trial.number, state=TrialState.PRUNED)
        else:
            self._note(trial, status)
            self.study.tell(trial.number, state=TrialState.FAIL)

    def sweep(self, arguments: Sequence[str]) -> list[Trial]:
        """Searches; says at the end what was best, as a command line."""
        ended = super().sweep(arguments)
        for line in self.best():
            self.sitting.say(line)
        return ended

    def best(self) -> Iterator[str]:
        """The best trial, or, of several objectives, all that none other beats in each of them."""
        from optuna.trial import TrialState

        if not self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            return
        several = len(self.objectives) > 1
        kind = "Pareto front" if several else "best"
        for found in self.study.best_trials if several else [self.study.best_trial]:
            pairs = zip(self.objectives, found.values, strict=True)
            values = ", ".join(f"{objective.name} {value:.6g}" for objective, value in pairs)
            words = shlex.join(self.folder.trial(found.number).overrides)
            yield f"{kind}: trial {found.number:03d}, {values}: seqtrain train {words}"

    def _objectives(self) -> list[Objective]:
        """What is searched for, by the task that all trials share."""
        from seqtrain import build

        folders = [Path(folder) for folder in self.folder.asked.config_dirs]
        task = build.task_class(self._corner(folders), self.sitting.trust)
        if self.wanted is None:
            name, mode = task.monitor
            return [Objective(f"best/{name}", mode)]
        if not self.wanted or len(set(self.wanted)) < len(self.wanted):
            raise Fault(f"hydra.sweeper.objectives={show(list(self.wanted))}: name one or more, each once")
        return [Objective.read(name, task.metrics) for name in self.wanted]

    def _corner(self, folders: list[Path]) -> Any:
        """The configuration of the first corner of the space that is one; Fault of the first where none is."""
        if "task" in self.space:
            raise Fault("task: a search compares runs of one task; name one")
        faults = []
        for side in (0, -1):
            words = [f"{name}={show(ends(kind)[side])}" for name, kind in self.space.items()]
            try:
                return check.compose([*self.fixed, *words], folders, self.sitting.trust).config
            except Fault as fault:
                faults.append(fault)
        raise faults[0]

    def _ask(self) -> int:
        """Asks the study for another trial; gives its number."""
        self.study.sampler = self._sampler(len(self.study.get_trials(deepcopy=False)))
        return self.study.ask(self.space).number

    def _sampler(self, number: int) -> Any:
        import numpy as np

        return studies.sampler(self.sampler, int(np.random.default_rng([self.seed, number]).integers(2**32)))

    def _waiting(self) -> list[int]:
        """Trials that were asked for and of whose end the study was not told."""
        return [found.number for found in self.study.get_trials(deepcopy=False) if not found.state.is_finished()]

    def _planned(self, number: int) -> Trial:
        """The trial of this number in its directory; what it is to be is in the study."""
        found = self._asked(number)
        if self.space.keys() - found.params.keys():  # killed while it was asked for
            found = self._completed(found)
        words = [f"{name}={show(value)}" for name, value in found.params.items()]
        label = " ".join(f"{name}={_short(value)}" for name, value in found.params.items())
        return self.folder.plan(number, [*self.fixed, *words], label)

    def _completed(self, found: FrozenTrial) -> FrozenTrial:
        """Draws the parameters that a trial has not got yet."""
        import optuna

        self.study.sampler = self._sampler(found.number)
        trial = optuna.trial.Trial(self.study, found._trial_id)
        for name, kind in self.space.items():
            trial._suggest(name, kind)
        return self._asked(found.number)

    def _asked(self, number: int) -> FrozenTrial:
        """How the study has a trial now."""
        return self.study.get_trials(deepcopy=False)[number]

    def _values(self, trial: Trial) -> list[float]:
        summary = Run(trial.path).summary
        return [objective.value(summary) for objective in self.objectives]

    def _note(self, trial: Trial, status: str) -> None:
        """Leaves in the study why a trial did not finish."""
        self.study._storage.set_trial_user_attr(self._asked(trial.number)._trial_id, status, trial.reason)


def space(params: Mapping[str, Any], words: Sequence[str]) -> tuple[dict[str, BaseDistribution], list[str]]:
    """What is searched, by key, and the words that all trials share; a word replaces what `params` says of its key.

    `~key` takes a key of `params` out of the space. Fault for what cannot be read.
    """
    given = {str(key): _parsed(f"{key}={value}") for key, value in params.items()}
    for text in words:
        override = _parsed(text)
        if override.is_delete() and override.key_or_group in given:
            del given[override.key_or_group]
        else:
            given[override.key_or_group] = override
    swept = {one.get_key_element(): _distribution(one) for one in given.values() if one.is_sweep_override()}
    return swept, [str(one.input_line) for one in given.values() if not one.is_sweep_override()]


def _parsed(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise Fault(f"{text}: not of the form key=value: {first_lines(error)}") from None


def _distribution(override: Override) -> BaseDistribution:
    """What Hydra's own sweeper for Optuna makes of a choice, a range or an interval."""
    studies.import_optuna()
    try:
        from hydra_plugins.hydra_optuna_sweeper._impl import create_optuna_distribution_from_override as distribution
    except ImportError:
        raise Fault("sweep=optuna: needs hydra-optuna-sweeper: pip install 'seqtrain[sweep]'") from None
    try:
        return distribution(override)
    except (AssertionError, NotImplementedError, ValueError) as error:
        raise Fault(f"{override.input_line}: no space to search: {first_lines(error)}; see {EXAMPLE}") from None


def ends(kind: Any) -> tuple[Any, Any]:
    """The first and the last value of a distribution."""
    from optuna.distributions import CategoricalDistribution

    return (kind.choices[0], kind.choices[-1]) if isinstance(kind, CategoricalDistribution) else (kind.low, kind.high)


def _short(value: Any) -> str:
    """A value as it stands in a label."""
    return f"{value:.4g}" if isinstance(value, float) else show(value)
