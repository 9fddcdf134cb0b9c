"""The Optuna study of a search (Akiba et al. 2019): its storage, its objectives, its sampler and its pruner."""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.errors import Unavailable, UserError, did_you_mean
from seqtrain.runs.summary import Summary

if TYPE_CHECKING:
    import optuna

    from seqtrain.tasks.base import Metric

STUDY = "study.db"
ELSEWHERE = "SEQTRAIN_STUDY"  # environment variable: URL of a storage outside the sweep; it may contain a password
PATIENCE = 60  # seconds that sqlite waits for another process to write

# Allowed samplers: none that unpickles content of the storage, as optuna's CmaEsSampler does.
SAMPLERS = tuple(f"optuna.samplers.{name}Sampler" for name in ("TPE", "Random", "GP", "NSGAII"))

# Allowed pruners.
PRUNERS = tuple(f"optuna.pruners.{name}Pruner" for name in ("Median", "Percentile", "SuccessiveHalving", "Nop"))

# Entries of a summary that may be objectives, and whether less or more is better.
FIGURES = {"seconds": "min", "flops": "min", "tokens": "min", "parameters": "min", "tokens_per_second": "max"}

WHICH = ("best", "validation")

NO_PATH = "?#%{}"  # characters that the address of a sqlite file cannot contain


@dataclass(frozen=True)
class Objective:
    """An objective of a search: best/NAME (best weights), validation/NAME (last weights), or one of FIGURES."""

    name: str
    mode: Literal["min", "max"]

    @classmethod
    def read(cls, name: str, metrics: Sequence[Metric]) -> Objective:
        """Parse an objective's name.

        Args:
            name: as in `Objective`.
            metrics: the metrics that the task measures.

        Raises:
            UserError: no run reports the objective.
        """
        which, _, metric = name.partition("/")
        if name in FIGURES:
            return cls(name, FIGURES[name])  # type: ignore[arg-type]
        for each in metrics:
            if which in WHICH and each.name == metric:
                return cls(name, each.better)
        known = [*FIGURES]
        for which in WHICH:
            known += [f"{which}/{each.name}" for each in metrics]
        raise UserError(f"hydra.sweeper.objectives={name}: no run of this task records it{did_you_mean(name, known)}")

    @property
    def metric(self) -> str | None:
        """Validation metric that the objective uses; None for a value of the whole run, which prunes no trial."""
        if self.name in FIGURES:
            return None
        return self.name.partition("/")[2]

    def value(self, summary: Summary) -> float:
        """Return the value of a finished run; raise KeyError or TypeError if its summary does not have it."""
        if self.name == "parameters":
            return float(summary.parameters["total"])
        if self.metric is None:
            return float(getattr(summary, self.name))
        validated = (summary.best if self.name.startswith("best/") else summary.metrics)["validation"]
        return float(validated[self.metric])


def import_optuna() -> Any:
    """Return the package, silenced; raise UserError if it is not installed."""
    try:
        import optuna
        import sqlalchemy  # noqa: F401 - optuna imports it only when it opens a storage
    except ImportError:
        raise Unavailable("sweep=optuna: needs optuna: pip install 'seqtrain[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def sampler(about: Mapping[str, Any], seed: int) -> optuna.samplers.BaseSampler:
    """Return the sampler of a trial's parameters; raise UserError for options that it does not have."""
    return _made("sampler", {**about, "seed": seed}, SAMPLERS)


def pruner(about: Mapping[str, Any]) -> optuna.pruners.BasePruner:
    """Return the pruner, which decides which trials to stop; raise UserError for options that it does not have."""
    return _made("pruner", about, PRUNERS)


def _made(key: str, about: Mapping[str, Any], allowed: Sequence[str]) -> Any:
    """Return a sampler or a pruner, the `key`, made from its options."""
    options = dict(about)
    target = str(options.pop("_target_", None))
    path = f"hydra.sweeper.{key}"
    if target not in allowed:
        raise UserError(f"{path}._target_={target}: expected one of {', '.join(allowed)}")
    kind = getattr(getattr(import_optuna(), f"{key}s"), target.rpartition(".")[2])
    try:
        return kind(**options)
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None


def begin(sweep: Path, objectives: Sequence[Objective], pruner: Mapping[str, Any], url: str | None) -> optuna.Study:
    """Return the study of a sweep, in SWEEP/study.db or in the storage at `url`; create it if it does not exist.

    Raises:
        UserError: it cannot be opened, or has other objectives.
    """
    optuna = import_optuna()
    names = [objective.name for objective in objectives]
    directions = {"max": "maximize", "min": "minimize"}
    os.environ.pop(ELSEWHERE, None)  # left by an earlier sweep of this process
    if url is not None:
        os.environ[ELSEWHERE] = url  # the processes of trials inherit it
    with opening(sweep):
        storage = _storage(sweep)
        known = _name(sweep, storage)
        study = optuna.create_study(
            study_name=known or sweep.name,
            storage=storage,
            directions=[directions[objective.mode] for objective in objectives],
            load_if_exists=known is not None,
        )
        if "objectives" not in study.user_attrs:
            study.set_metric_names(names)
            study.set_user_attr("objectives", names)
        study.set_user_attr("pruner", dict(pruner))  # for the processes of trials
    if study.user_attrs["objectives"] != names:
        begun = ",".join(study.user_attrs["objectives"])
        raise UserError(
            f"hydra.sweeper.objectives=[{','.join(names)}]: sweep {sweep} was begun with [{begun}]; keep them"
        )
    return study


def running_trial(run: Path) -> optuna.trial.Trial | None:
    """Return the search's trial for this run directory, if its study is still waiting for it.

    Errors of the storage are raised unchanged.
    """
    optuna, sweep = import_optuna(), run.absolute().parent
    storage = _storage(sweep, exists=True)
    study = optuna.load_study(
        study_name=_name(sweep, storage),
        storage=storage,
        sampler=optuna.samplers.RandomSampler(),  # it proposes nothing here
    )
    study.pruner = pruner(study.user_attrs["pruner"])
    for trial in study.get_trials(deepcopy=False):
        if trial.number == int(run.name) and trial.state == optuna.trial.TrialState.RUNNING:
            return optuna.trial.Trial(study, trial._trial_id)
    return None


def reported(study: optuna.Study) -> str | None:
    """Return the validation metric that the study prunes by; None if it prunes no trial."""
    names = study.user_attrs["objectives"]
    if len(names) != 1:  # Optuna prunes by a single objective only
        return None
    return Objective(names[0], "min").metric


def gives_up(trial: optuna.trial.Trial, step: int) -> bool:
    """Return True if the study's pruner stops the trial after its validation at `step`; repeated calls agree.

    Successive halving records in the study which rungs a trial has passed, so a second call would check the next rung.
    Therefore the record from before the first call at this step is kept, and shown to the pruner each time.
    """
    asked = f"asked at step {step}"
    found = copy.copy(trial.storage.get_trial(trial._trial_id))
    if asked not in found.system_attrs:
        trial.storage.set_trial_system_attr(trial._trial_id, asked, sorted(found.system_attrs))
    before = found.system_attrs.get(asked, found.system_attrs)
    found.system_attrs = {name: value for name, value in found.system_attrs.items() if name in before}
    return trial.study.pruner.prune(trial.study, found)


def _storage(sweep: Path, *, exists: bool = False) -> optuna.storages.BaseStorage:
    """Return the storage of the sweep's study. `exists`: it was opened before, so its tables are not checked."""
    optuna = import_optuna()
    file = sweep.absolute() / STUDY
    url = os.environ.get(ELSEWHERE)
    if url is None:
        if not set(NO_PATH).isdisjoint(str(file)):
            raise UserError(f"hydra.sweep.dir={sweep}: a sqlite path cannot contain any of {NO_PATH}; give another one")
        if exists and not file.is_file():  # sqlite would make an empty one
            raise Unavailable(f"{file}: no such file; restore the study, or start a new sweep")
        url = f"sqlite:///{file}"
    options = {}
    if url.startswith("sqlite"):  # other databases wait by themselves and do not have this option
        options["connect_args"] = {"timeout": PATIENCE}
    storage = optuna.storages.RDBStorage(
        url, engine_kwargs=options, skip_compatibility_check=exists, skip_table_creation=exists
    )
    return optuna.storages.get_storage(storage)


def _name(sweep: Path, storage: optuna.storages.BaseStorage) -> str | None:
    """Return the name of the sweep's study: the only one in its own file, even if the folder was renamed."""
    names = [study.study_name for study in storage.get_all_studies()]
    if ELSEWHERE not in os.environ:
        return next(iter(names), None)
    if sweep.name in names:  # several sweeps may share a storage
        return sweep.name
    return None


@contextlib.contextmanager
def opening(sweep: Path) -> Iterator[None]:
    """Convert errors of a storage to UserError, without its address, which may contain a password.

    An untrusted study may contain anything, so Optuna may raise any error.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise Unavailable(f"sweep {sweep}: its study cannot be opened: {reason}") from None
