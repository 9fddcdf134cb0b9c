"""`seqtrain train -m`, `seqtrain resume SWEEP`: run a sweep to its end, from its start or from where it stopped."""

from __future__ import annotations

import collections
import functools
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.cli import folds
from seqtrain.config.trust import trust_words, trusted
from seqtrain.distributed import ranks
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.experiment.dry_run import dry_run, print_cost
from seqtrain.experiment.start import Request
from seqtrain.files.atomic import exists, listed, plain_json
from seqtrain.runs.directory import CONFIG, Run, remove
from seqtrain.sweeps.folder import ENDED, INDEX, REPEATS, STOP, Asked, Sweep, Trial
from seqtrain.terminal import pasted
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from seqtrain.config.conf_files import ConfFiles
    from seqtrain.sweeps.settings import Settings

# Faults of a key or a word that do not depend on other values.
UNKNOWN = re.compile(r": (no such |\S+ has no option |not of the form )")
MOST_COMPOSED = 100  # trials of a grid that are composed beforehand, a tenth of a second each

# Exit codes of trials; every other status is 1.
CODES = {"finished": 0, "pruned": 0, "refused": 2}


def start(request: Request, *, as_json: bool) -> int:
    """Run a new sweep; return the worst exit code of its trials."""
    from seqtrain.sweeps.settings import Settings, Words

    words = Words.sort(folds.expanded(request.overrides))
    if "dry_run=true" not in words.trial:
        return _finish(run_new(request), as_json)
    _refuse_several_processes()
    settings = Settings.read(words, request.config_dirs)
    if _searches(settings):
        raise UserError("--dry-run: a search proposes its trials as it goes; leave out -m and sweep= to see one's cost")
    return _dry_run(words.trial, settings, request, as_json)


def run_new(request: Request) -> Sweep:
    """Run a new sweep until no trial is left. This process still holds it: see `Sweep.close`.

    Raises:
        UserError: If it cannot begin, or no trial could. Nothing of it is left on the disk then.
        Interrupted: At a signal; the sweep can be resumed.
    """
    from seqtrain.sweeps.settings import Settings, Words

    _refuse_several_processes()
    request = replace(request, overrides=folds.expanded(request.overrides))
    words = Words.sort(request.overrides)
    settings = Settings.read(words, request.config_dirs)
    searches = _searches(settings)
    if searches and folds.is_swept(words.trial):
        raise UserError(
            "data.fold: a search would choose the fold that is easiest; list what to compare, without sweep="
        )
    asked = Asked(
        # The address of a storage may hold a password, so it is given again.
        overrides=tuple(word for word in request.overrides if not word.startswith("hydra.sweeper.storage=")),
        kind="optuna" if searches else "grid",
        config_dirs=tuple(map(str, request.config_dirs)),
        trust=trusted(),
    )
    sweeper = _sweeper(settings)
    runner = _runner(settings, searches)
    if not searches:
        _refuse_unknown(words.trial, settings.files, request.config_dirs)
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


def _refuse_unknown(words: Sequence[str], files: ConfFiles, config_dirs: Sequence[Path]) -> None:
    """Raise UserError, before a folder is made, for keys that are unknown in every trial of a grid."""
    from seqtrain.config import check
    from seqtrain.sweeps.grid import combinations

    trials = combinations(words, files)
    if len(trials) > MOST_COMPOSED:  # the key may exist in one that was not looked at
        return
    common: dict[str, str] | None = None
    for overrides, _ in trials:
        try:
            check.compose(list(overrides), config_dirs)
        except UserError as fault:
            found = {re.split("[=:]", line)[0]: line for line in fault.lines if UNKNOWN.search(line)}
            common = found if common is None else {key: line for key, line in common.items() if key in found}
        else:
            return
    if common:
        raise UserError(*common.values())


def _refuse_if_none_began(sweep: Sweep) -> None:
    """Raise UserError if no trial could begin: then the command was wrong, and the sweep is of no use."""
    trials = sweep.trials()
    if trials and all(trial.status == "refused" or trial.unavailable for trial in trials) and not _has_runs(sweep):
        raise UserError(*dict.fromkeys(trial.reason for trial in trials))


def _searches(settings: Settings) -> bool:
    """Return True if trials are proposed as the sweep learns. Those of a grid are known in advance."""
    return str(settings.config.hydra.runtime.choices["hydra/sweeper"]) != "grid"


def resume(path: Path, words: Sequence[str], *, retry_failed: bool, as_json: bool) -> int:
    """Resume a sweep: run trials that are missing or unfinished, and with `retry_failed` those that failed.

    Args:
        path: The sweep's directory.
        words: Overrides of Hydra's options, such as hydra.launcher.*
        retry_failed: Run failed and refused trials again.
        as_json: Print results as JSON.
    """
    from seqtrain.cli import addresses
    from seqtrain.sweeps import launchers
    from seqtrain.sweeps.settings import Settings, Words

    _refuse_several_processes()
    sweep = Sweep.open(path)
    sweep.check_entries()
    addresses.check_sweep(sweep)
    asked, typed = sweep.asked, Words.sort(words)
    if typed.trial:
        raise UserError(
            f"{typed.trial[0]}: a sweep keeps what it was asked for; start another one with seqtrain train -m"
        )
    missing = [package for package in asked.trust if package not in trusted()]
    if missing:
        again = " ".join(f"--trust {package}" for package in missing)
        raise UserError(f"sweep {path} was run with {again}; if you trust that code, add {again}")
    # Overrides and configs hold paths relative to the folder where the sweep was typed.
    sweep = sweep.where_it_began(say)
    path = sweep.path
    recorded = Words.sort(asked.overrides)
    settings = Settings.read(
        Words(typed.hydra, recorded.trial), list(map(Path, asked.config_dirs)), recorded=recorded.hydra, directory=path
    )
    sweeper = _sweeper(settings)
    runner = _runner(settings, asked.kind == "optuna")
    sweep.claim()  # before `prepare`, which removes what a process that still runs may be writing
    sweep.prepare()
    running = launchers.queued(launchers.submitted(launchers.attempts(path)))
    if running:  # SLURM's jobs outlive the command that submitted them, and two would train one trial
        raise UserError(f"sweep {path}: its jobs {running} are in the queue: wait for them, or scancel {running}")
    left = collections.Counter(trial.status for trial in sweep.trials() if trial.status in ENDED)
    say(f"sweep {path}: resumed; left as they are: {_counted(left) or 'none'}")
    ended = _run_trials(sweep, sweeper, runner, recorded.trial, settings, retry_failed=retry_failed)
    # An attempt may have been killed between its last training and the measuring of its folds.
    if not ended and not folds.unmeasured(sweep):
        sweep.write_index()  # that of an attempt that was killed may be of before its last trial ended
        retry = ""
        if left["failed"]:
            retry = f"; `{pasted('seqtrain', 'resume', path)} --retry-failed` tries those that failed"
        raise UserError(f"sweep {path}: nothing to do, every trial has ended{retry}")
    return _finish(sweep, as_json)


def _run_trials(
    sweep: Sweep, sweeper: Any, runner: Any, words: Sequence[str], settings: Settings, *, retry_failed: bool
) -> list[Trial]:
    """Run trials until none is left; return those that ended.

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

    (sweep.path / STOP).unlink(missing_ok=True)  # of an attempt that was ended: no trial would begin
    sweeper.setup(
        hydra_context=launchers.context(settings.files.loader),
        task_function=launchers.run_trial,
        config=settings.config,
    )
    sweeper.attempt = SweepAttempt(runner, retry_failed, say)
    try:
        return sweeper.sweep(words)
    except Interrupted as interrupted:
        if (sweep.path / INDEX).exists():  # else the plan is not complete, and a resume makes it anew
            sweep.write_index()
        again = pasted("seqtrain", "resume", sweep.path)
        say(f"interrupted by {signal.Signals(interrupted.number).name}: `{again}` goes on")
        raise


def _sweeper(settings: Settings) -> Any:
    from seqtrain.sweeps.sweeper import Sweeper

    return settings.make("sweeper", Sweeper)


def _runner(settings: Settings, searches: bool) -> Any:
    """Return what runs the trials: our own launcher, or an adapter for one of Hydra's."""
    from hydra.plugins.launcher import Launcher

    from seqtrain.sweeps import launchers

    launcher = settings.make("launcher", Launcher, launchers.Local)
    if isinstance(launcher, launchers.Local):
        launcher.say = say
        return launcher
    work = functools.partial(launchers.run_trial, words=trust_words())
    launcher.setup(hydra_context=launchers.context(settings.files.loader), task_function=work, config=settings.config)
    # A search learns from what has ended: it hands out as many as run at a time. A grid hands out all.
    node = settings.config.hydra.launcher
    at_once = int(node.get("n_jobs", node.get("array_parallelism", 1)))
    if at_once < 1:  # joblib's way to say so
        at_once = len(os.sched_getaffinity(0))
    return launchers.HydraLauncher(launcher, settings.directory, say, together=at_once if searches else None)


def _refuse_several_processes() -> None:
    if ranks.rank_info().world > 1:
        raise UserError("a sweep starts the processes of its trials itself: run it once, without srun or torchrun")


def _has_runs(sweep: Sweep) -> bool:
    """Return True if a trial has left anything that a user may want."""
    return any(path.name.isdigit() and exists(path / CONFIG) for path in listed(sweep.path))


def _dry_run(words: Sequence[str], settings: Settings, request: Request, as_json: bool) -> int:
    """Print the cost of each trial of a grid; leave nothing on the disk."""
    from seqtrain.config import check
    from seqtrain.sweeps.grid import combinations

    code = 0
    # Without repeats, as the sweep would number them: a value that is typed twice makes one trial.
    for number, (overrides, label) in enumerate(dict.fromkeys(combinations(words, settings.files))):
        say(f"trial {number:03d} {label}")
        try:
            composed = check.compose(overrides, request.config_dirs)
            print_cost(dry_run(composed, request), as_json)
        except UserError as fault:
            code = 2
            for line in fault.lines:
                say(f"error: {line}")
    return code


def _finish(sweep: Sweep, as_json: bool) -> int:
    """Print how the trials ended and what to do next. Return the worst of their exit codes."""
    trials = sweep.trials()
    sweep.write_index()
    statuses = collections.Counter(trial.status for trial in trials)
    measured = folds.measure(sweep)
    if as_json:
        for trial in trials:
            print(plain_json(_row(trial)))
    else:
        if statuses["finished"] + statuses["pruned"]:  # without a number there is nothing to compare
            from seqtrain.compare import table

            print(table.report([sweep.path], tested=bool(measured)))
        print(f"sweep {sweep.path}: {len(trials)} trials: {_counted(statuses)}")
        print(f"next: {'; '.join(_next_commands(sweep, trials))}")
    tried = statuses["finished"] + statuses["pruned"]
    if sweep.asked.kind == "optuna" and tried > 1:
        say(
            f"the best of {tried} trials was picked by its own number, which is partly luck: repeat its settings with "
            "seeds that no trial has had, as in `seqtrain train -m ... seed=101,102,103`"
        )
    # A search that proposes settings which another trial has had is no fault, though that trial is refused.
    judged = [trial.status for trial in trials if not trial.reason.startswith(REPEATS)]
    return max((CODES.get(status, 1) for status in judged), default=0)


def _next_commands(sweep: Sweep, trials: list[Trial]) -> list[str]:
    """Return the commands that a user may want next."""
    commands = [f"{pasted('seqtrain', 'compare', sweep.path)} --html report.html"]
    if folds.is_swept(sweep.asked.overrides):
        commands = [f"{pasted('seqtrain', 'compare', sweep.path)} --split test"]
    resume = pasted("seqtrain", "resume", sweep.path)
    statuses = {trial.status for trial in trials}
    if not statuses.issubset(ENDED):
        commands.append(resume)
    if "failed" in statuses:
        commands.append(f"{resume} --retry-failed")
    return commands


def _row(trial: Trial) -> dict[str, Any]:
    """Return a trial as a JSON row."""
    row = {**trial.row(), "run": None, "metrics": {}}
    if (trial.path / CONFIG).exists():
        row |= {"run": str(trial.path), "metrics": Run(trial.path).summary.metrics}
    return row


def _counted(statuses: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in statuses.items() if count)
