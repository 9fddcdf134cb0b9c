"""Run a sweep to its end, from the start or from where an earlier attempt stopped."""

from __future__ import annotations

import collections
import functools
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.config.trust import trust_words, trusted
from seqtrain.distributed import ranks
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists, listed
from seqtrain.runs.directory import CONFIG, remove
from seqtrain.sweeps.folder import ENDED, INDEX, STOP, Asked, Sweep, Trial
from seqtrain.terminal import pasted
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from seqtrain.sweeps.settings import Settings

FOLDS, FOLD = "data.folds", "data.fold"


def start(overrides: Sequence[str], config_dirs: Sequence[Path]) -> Sweep:
    """Run a new sweep until no trial is left. This process still holds it: see `Sweep.close`.

    Args:
        overrides: Overrides of the trials, which may have several values, and of Hydra's options.
        config_dirs: Folders with the user's own configs.

    Raises:
        UserError: If the sweep, or all of its trials, could not begin. Nothing is left on the disk then.
        Interrupted: At a signal; the sweep can be resumed.
    """
    from seqtrain.sweeps.settings import Settings, Words

    refuse_several_processes()
    overrides = with_folds(overrides)
    words = Words.sort(overrides)
    settings = Settings.read(words, config_dirs)
    has_search = searches(settings)
    if has_search and sweeps_folds(words.trial):
        raise UserError(
            "data.fold: a search would choose the fold that is easiest; list what to compare, without sweep="
        )
    asked = Asked(
        # The address of a storage may contain a password, so it is not recorded; a resume needs it again.
        overrides=tuple(word for word in overrides if not word.startswith("hydra.sweeper.storage=")),
        kind="optuna" if has_search else "grid",
        config_dirs=tuple(map(str, config_dirs)),
        trust=trusted(),
    )
    sweeper = _sweeper(settings)
    runner = _runner(settings, has_search)
    sweep = Sweep.create(settings.directory, asked)
    say(f"sweep {sweep.path}")
    try:
        _run_trials(sweep, sweeper, runner, words.trial, settings, retry_failed=False)
        _refuse_if_none_began(sweep)
    except BaseException as error:
        # A sweep that began has results to keep; an interrupted one can be resumed.
        if isinstance(error, UserError) and not _has_runs(sweep):
            remove(sweep.path)
        sweep.close()
        raise
    return sweep


def _refuse_if_none_began(sweep: Sweep) -> None:
    """Raise UserError if no trial could begin: then the command was wrong, and the sweep is useless."""
    trials = sweep.trials()
    if trials and all(trial.status == "refused" or trial.unavailable for trial in trials) and not _has_runs(sweep):
        raise UserError(trials[0].reason)  # the log has every trial's


def searches(settings: Settings) -> bool:
    """Return True if trials are proposed from earlier results; the trials of a grid are known in advance."""
    return str(settings.config.hydra.runtime.choices["hydra/sweeper"]) != "grid"


def resume(sweep: Sweep, words: Sequence[str], *, retry_failed: bool) -> tuple[Sweep, list[Trial]]:
    """Resume a sweep: run missing and unfinished trials, and with `retry_failed` also failed ones.

    Args:
        sweep: The sweep, opened, with its entries checked.
        words: Overrides of Hydra's options, such as hydra.launcher.*
        retry_failed: Run failed and refused trials again.

    Returns:
        The sweep, opened in the folder where it began, and the trials that ended in this attempt.

    Raises:
        UserError: If `words` would change the trials, a package is not trusted, or the sweep's jobs are queued.
        Interrupted: At a signal; the sweep can be resumed.
    """
    from seqtrain.sweeps import launchers
    from seqtrain.sweeps.settings import Settings, Words

    asked, typed = sweep.asked, Words.sort(words)
    if typed.trial:
        raise UserError(f"{typed.trial[0]}: a resumed sweep keeps its trials; start another one with seqtrain train -m")
    missing = [package for package in asked.trust if package not in trusted()]
    if missing:
        again = " ".join(f"--trust {package}" for package in missing)
        raise UserError(f"sweep {sweep.path} was run with {again}; if you trust that code, add {again}")
    # Overrides and configs contain paths relative to the folder where the sweep was started.
    sweep = sweep.where_it_began(say)
    path = sweep.path
    recorded = Words.sort(asked.overrides)
    settings = Settings.read(
        Words(typed.hydra, recorded.trial), list(map(Path, asked.config_dirs)), recorded=recorded.hydra, directory=path
    )
    sweeper = _sweeper(settings)
    runner = _runner(settings, asked.kind == "optuna")
    sweep.claim()  # before `prepare`, which would remove partial files of a process that still runs
    sweep.prepare()
    running = launchers.queued(launchers.submitted(launchers.attempts(path)))
    if running:  # SLURM's jobs outlive the command that submitted them: two jobs would train the same trial
        raise UserError(f"sweep {path}: its jobs {running} are in the queue: wait for them, or scancel {running}")
    left = collections.Counter(trial.status for trial in sweep.trials() if trial.status in ENDED)
    say(f"sweep {path}: resumed; already ended: {counted(left) or 'none'}")
    return sweep, _run_trials(sweep, sweeper, runner, recorded.trial, settings, retry_failed=retry_failed)


def _run_trials(
    sweep: Sweep, sweeper: Any, runner: Any, words: Sequence[str], settings: Settings, *, retry_failed: bool
) -> list[Trial]:
    """Run trials until none is left; return the trials that ended.

    Args:
        sweep: The sweep.
        sweeper: Proposes the trials.
        runner: Runs the trials.
        words: Overrides that the trials are made of.
        settings: Settings of the sweep.
        retry_failed: Run failed and refused trials again.
    """
    from seqtrain.sweeps import launchers
    from seqtrain.sweeps.sweeper import SweepAttempt

    (sweep.path / STOP).unlink(missing_ok=True)  # left by an earlier attempt: it would keep trials from starting
    sweeper.setup(
        hydra_context=launchers.context(settings.files.loader),
        task_function=launchers.run_trial,
        config=settings.config,
    )
    sweeper.attempt = SweepAttempt(runner, retry_failed, say)
    try:
        return sweeper.sweep(words)
    except Interrupted as interrupted:
        if (sweep.path / INDEX).exists():  # otherwise the plan is incomplete, and a resume makes a new one
            sweep.write_index()
        again = pasted("seqtrain", "resume", sweep.path)
        say(f"interrupted by {signal.Signals(interrupted.number).name}: `{again}` continues it")
        raise


def _sweeper(settings: Settings) -> Any:
    from seqtrain.sweeps.sweeper import Sweeper

    return settings.make("sweeper", Sweeper)


def _runner(settings: Settings, has_search: bool) -> Any:
    """Return the runner of the trials: our own launcher, or an adapter for one of Hydra's."""
    from hydra.plugins.launcher import Launcher

    from seqtrain.sweeps import launchers

    launcher = settings.make("launcher", Launcher, launchers.Local)
    if isinstance(launcher, launchers.Local):
        launcher.say = say
        return launcher
    work = functools.partial(launchers.run_trial, words=trust_words())
    launcher.setup(hydra_context=launchers.context(settings.files.loader), task_function=work, config=settings.config)
    # A search learns from ended trials, so it hands out only as many as run at a time. A grid hands out all.
    node = settings.config.hydra.launcher
    at_once = int(node.get("n_jobs", node.get("array_parallelism", 1)))
    if at_once < 1:  # in joblib, -1 means all cores
        at_once = len(os.sched_getaffinity(0))
    return launchers.HydraLauncher(launcher, settings.directory, say, together=at_once if has_search else None)


def refuse_several_processes() -> None:
    """Raise UserError in one of several processes: the sweep starts the processes of its trials itself."""
    if ranks.rank_info().world > 1:
        raise UserError("a sweep starts the processes of its trials itself: run it once, without srun or torchrun")


def _has_runs(sweep: Sweep) -> bool:
    """Return True if a trial has left a run directory, which the user may want to keep."""
    return any(path.name.isdigit() and exists(path / CONFIG) for path in listed(sweep.path))


def counted(statuses: collections.Counter[str]) -> str:
    """Return statuses with their counts: "3 finished, 1 failed"."""
    return ", ".join(f"{count} {status}" for status, count in statuses.items() if count)


def asks_for_all_folds(words: Sequence[str]) -> bool:
    """Return True if the command requests cross-validation over all folds, which makes it a sweep even without -m."""
    return _value(words, FOLDS) not in (None, "null") and _value(words, FOLD) is None


def with_folds(words: Sequence[str]) -> list[str]:
    """Return the overrides of a sweep; add one that lists all folds if cross-validation over all is requested.

    Raises:
        UserError: If the number of folds is not a single whole number above 1.
    """
    if not asks_for_all_folds(words):
        return list(words)
    from seqtrain.config.conf_files import ConfFiles  # imports Hydra, which other commands do without

    value = str(_value(words, FOLDS))
    # Sweeping the number of folds would leave no common folds to compare.
    if not value.isdecimal() or int(value) < 2:
        raise UserError(f"{FOLDS}={value}: expected one whole number from 2 on; each fold is a trial")
    chosen = _value(words, "data")
    options = ConfFiles().content("data", chosen) if chosen else {}
    if options and "folds" not in options:
        raise UserError(
            f"{FOLDS}={value}: data={chosen} has no folds; cross-validation is of labelled text, data=labelled"
        )
    # The last override changes fastest: all folds of a setting are trained before the next setting.
    return [*words, f"{FOLD}={','.join(map(str, range(int(value))))}"]


def sweeps_folds(words: Sequence[str]) -> bool:
    """Return True if the trials of a sweep are folds."""
    value = _value(words, FOLD)
    return value is not None and "," in value


def _value(words: Sequence[str], key: str) -> str | None:
    """Return the last value given for a key, or None if the key is not named."""
    from seqtrain.config.check import key_of  # imports Hydra, which other commands do without

    found = None
    # The last one counts, as in Hydra.
    for word in words:
        if key_of(word) == key:
            found = word.partition("=")[2].strip()
    return found
