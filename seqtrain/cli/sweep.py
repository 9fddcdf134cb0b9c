"""`seqtrain train -m`, `seqtrain resume SWEEP`: run a sweep to its end, measure its folds, and print the result."""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.cli.evaluate import evaluate, kept_in_run
from seqtrain.compare.folds import fold_of
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, dry_run, print_cost
from seqtrain.files.atomic import plain_json
from seqtrain.runs.directory import CONFIG, Run
from seqtrain.runs.evaluations import kept
from seqtrain.sweeps import attempts
from seqtrain.sweeps.attempts import counted
from seqtrain.sweeps.folder import ENDED, Sweep, Trial
from seqtrain.terminal import pasted

if TYPE_CHECKING:
    from seqtrain.sweeps.settings import Settings

# Exit codes of trials; every other status is 1.
CODES = {"finished": 0, "pruned": 0, "refused": 2}
TEST = "test"


def start(request: Request, *, as_json: bool) -> int:
    """Run a new sweep; return the worst exit code of its trials."""
    from seqtrain.sweeps.settings import Settings, Words

    words = Words.sort(attempts.with_folds(request.overrides))
    if "dry_run=true" not in words.trial:
        return _finish(attempts.start(request.overrides, request.config_dirs), as_json)
    attempts.refuse_several_processes()
    settings = Settings.read(words, request.config_dirs)
    if attempts.searches(settings):
        raise UserError("--dry-run: a search proposes its trials as it goes; leave out -m and sweep= to see one's cost")
    return _dry_run(words.trial, settings, request, as_json)


def resume(path: Path, words: Sequence[str], *, retry_failed: bool, as_json: bool) -> int:
    """Resume a sweep; return the worst exit code of its trials.

    Args:
        path: The sweep's directory.
        words: Overrides of Hydra's options, such as hydra.launcher.*
        retry_failed: Run failed and refused trials again.
        as_json: Print results as JSON.
    """
    attempts.refuse_several_processes()
    sweep = Sweep.open(path)
    sweep.check_entries()
    check_sweep(sweep)
    sweep, ended = attempts.resume(sweep, words, retry_failed=retry_failed)
    # An earlier attempt may have been killed after its last training, before its folds were measured.
    if not ended and not _unmeasured(sweep):
        sweep.write_index()  # a killed attempt may have left one from before its last trial ended
        retry = ""
        if any(trial.status == "failed" for trial in sweep.trials()):
            retry = f"; `{pasted('seqtrain', 'resume', sweep.path)} --retry-failed` retries the failed ones"
        raise UserError(f"sweep {sweep.path}: nothing to do, every trial has ended{retry}")
    return _finish(sweep, as_json)


def _dry_run(words: Sequence[str], settings: Settings, request: Request, as_json: bool) -> int:
    """Print the cost of each trial of a grid; leave nothing on the disk."""
    from seqtrain.config import check
    from seqtrain.sweeps.grid import combinations

    code = 0
    # Without repeats, as in the sweep itself: a value that is typed twice makes one trial.
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
    measured = _measure_folds(sweep)
    if as_json:
        for trial in trials:
            print(plain_json(_row(trial)))
    else:
        if statuses["finished"] + statuses["pruned"]:  # otherwise there are no results to compare
            from seqtrain.compare import table

            print(table.report([sweep.path], tested=bool(measured)))
        print(f"sweep {sweep.path}: {len(trials)} trials: {counted(statuses)}")
        print(f"next: {'; '.join(_next_commands(sweep, trials))}")
    tried = statuses["finished"] + statuses["pruned"]
    if sweep.asked.kind == "optuna" and tried > 1:
        say(
            f"the best of {tried} trials was chosen by its own result, which is partly luck: repeat its settings with "
            "new seeds, as in `seqtrain train -m ... seed=101,102,103`"
        )
    return max((CODES.get(status, 1) for status in statuses), default=0)


def _measure_folds(sweep: Sweep) -> list[Path]:
    """Measure finished trials on their folds, unless already measured; return the measured runs.

    Training does not read the fold. It chooses its checkpoint by separate validation rows.
    """
    for trial in _unmeasured(sweep):
        try:
            # With baselines: a network is compared with a linear model on rows that neither has seen.
            kept_in_run(evaluate(str(trial.path), TEST, "best", None, with_baselines=True), None)
        except UserError as fault:  # the other folds still have results, and compare names this one
            for line in fault.lines:
                say(f"trial {trial.name}: not measured on its fold: {line}")
    left = [trial.path for trial in _unmeasured(sweep)]
    measured = [trial.path for trial in sweep.trials() if _is_fold(trial) and trial.path not in left]
    if measured:
        say(f"{len(measured)} trials were measured on their test folds")
    return measured


def _unmeasured(sweep: Sweep) -> list[Trial]:
    """Return the finished folds without a result. Measuring the others again would give the same numbers."""
    return [trial for trial in sweep.trials() if _is_fold(trial) and kept(trial.path).newest(TEST, "best") is None]


def _is_fold(trial: Trial) -> bool:
    return trial.status == "finished" and fold_of(Run(trial.path).config) is not None


def _next_commands(sweep: Sweep, trials: list[Trial]) -> list[str]:
    """Return the commands that a user may want next."""
    commands = [f"{pasted('seqtrain', 'compare', sweep.path)} --html report.html"]
    if attempts.sweeps_folds(sweep.asked.overrides):
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


# Server addresses of loggers must be typed or set in the environment, not come from the config of a run.
KEY, VARIABLE = "tracking_uri", "MLFLOW_TRACKING_URI"


def check_run(run: Run, typed: Collection[str] = ()) -> None:
    """Raise UserError for a server address that only the run's config names.

    Args:
        run: The run whose loggers are checked.
        typed: Overrides of this command. An address that is typed here is accepted.
    """
    from seqtrain.config.check import key_of

    loggers = run.config.get("logger")
    if not isinstance(loggers, dict):
        return
    for name, logger in loggers.items():
        key = f"logger.{name}.{KEY}"
        if isinstance(logger, dict) and key not in map(key_of, typed):
            _check_address(key, logger.get(KEY), run.path, f"give {key}=... again, or ")


def check_sweep(sweep: Sweep) -> None:
    """Check a sweep in the same way, and also its trials that have begun and not ended."""
    from seqtrain.config.check import key_of

    trials = sweep.trials()
    overrides = itertools.chain(sweep.asked.overrides, *(trial.overrides for trial in trials))
    for word in overrides:
        key = key_of(word)
        if key.startswith("logger.") and key.endswith(f".{KEY}"):
            _check_address(key, word.partition("=")[2].strip("'\""), sweep.path)
    # The config of a trial that has begun may be another than its overrides say: it is a file as well.
    for trial in trials:
        if (trial.path / CONFIG).exists() and trial.status not in ENDED:
            check_run(Run.open(trial.path))


def _check_address(key: str, address: Any, where: Path, remedy: str = "") -> None:
    # The environment is set by the user, so the same address in a config is safe.
    if address not in (None, "null", os.environ.get(VARIABLE)):
        raise UserError(
            f"{where}: {key}={address}: its records would go there, and nobody but its config says so; "
            f"if you know that server, {remedy}set {VARIABLE} to it"
        )
