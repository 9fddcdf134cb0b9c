"""`seqtrain trial`, called only by launchers: run one trial of a sweep, from its current state to its end."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from seqtrain.cli.arguments import Parser, finish
from seqtrain.distributed import ranks
from seqtrain.errors import Unavailable, UserError, kind_of
from seqtrain.experiment.resume import resume
from seqtrain.experiment.start import Request, start
from seqtrain.files.checked import open_append
from seqtrain.runs.directory import CONFIG, METRICS, Run, is_written
from seqtrain.sweeps.folder import STOP, Status, Sweep, Trial, status_after
from seqtrain.training.callbacks.signals import Interrupted


def main(argv: list[str]) -> int:
    """Run the command; return its exit code. Every task of a job step may run it."""
    parser = Parser("trial", "Run one trial of a sweep; called by launchers.", "seqtrain trial outputs/sweep 003")
    parser.add_argument("sweep", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(argv)
    sweep = Sweep.open(options.sweep).where_it_began(lambda _: None)  # the sweep's own process has logged it
    trial = sweep.trial(options.number)
    ranks.die_with_parent()  # so that no trial outlives a killed sweep
    _redirect(trial.log)
    with ranks.process_group() as here:
        # Rank 0 decides: the others may look later, when the run has begun.
        todo = ranks.broadcast(_todo(trial) if here.first else None)
        if todo is None:
            return 0
        if not here.first:
            return finish(_run(trial, todo, sweep, options.threads), as_json=False)
        return _run_recorded(trial, todo, sweep, options.threads)


def _todo(trial: Trial) -> str | None:
    """Return the next action: `begin`, `resume`, or None if the trial has ended or another process runs it."""
    if (trial.sweep / STOP).exists() or is_written(trial.path):
        return None
    if not (trial.path / CONFIG).exists():
        return "begin"
    if trial.status in ("finished", "pruned"):
        return None
    return "resume"


def _redirect(log: Path) -> None:
    """Redirect all output to the trial's log, appended to the output of earlier attempts."""
    with open_append(log) as file:
        sys.stdout.flush()
        sys.stderr.flush()
        # File descriptors instead of sys.stdout: C libraries and child processes print to them, too.
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _run_recorded(trial: Trial, todo: str, sweep: Sweep, threads: int | None) -> int:
    """Run the trial; always record in the sweep's directory how it ended."""
    trial.conclude("running", pid=os.getpid())  # the only record if the process is killed at once
    status: Status = "failed"
    reason = ""
    unavailable = False
    try:
        return finish(_run(trial, todo, sweep, threads), as_json=False)
    except Interrupted:
        status = "interrupted"
        raise
    except UserError as fault:
        unavailable = isinstance(fault, Unavailable)
        status, reason = status_after(fault), "; ".join(fault.lines)
        raise
    except BaseException as error:
        unavailable = kind_of(error) is Unavailable
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        if (trial.path / CONFIG).exists():  # the run has the exact status
            status, reason = trial.status, trial.reason or reason
        trial.conclude(status, reason, unavailable=unavailable)


def _run(trial: Trial, todo: str, sweep: Sweep, threads: int | None) -> Run:
    """Train the trial, from the start or from its newest checkpoint."""
    command = ("seqtrain", "train", *trial.overrides, f"run_dir={trial.path}")
    if todo == "resume":  # its own config is complete, even if the sweep's config files have changed
        return resume(str(trial.path), [], command)
    from seqtrain.config import check

    folders = tuple(Path(folder) for folder in sweep.asked.config_dirs)
    composed = check.compose(trial.overrides, folders)
    config = composed.config
    config.run_dir = str(trial.path)
    if threads is not None and config.trainer.threads is None:  # the trial's own setting wins
        config.trainer.threads = threads
    if ranks.rank_info().first:
        _clear(trial.path)
    return start(composed, Request(list(trial.overrides), folders, command))


def _clear(path: Path) -> None:
    """Remove the remains of a start that was killed before it wrote a config.

    Raises:
        UserError: If the folder is a run that has lost its config.
    """
    metrics, checkpoints = path / METRICS, path / "checkpoints"
    has_records = metrics.exists() and metrics.stat().st_size
    has_checkpoints = checkpoints.exists() and any(checkpoints.iterdir())
    if has_records or has_checkpoints:
        raise UserError(
            f"{path} is a run without its {CONFIG}: restore it, or delete the folder to train the trial again"
        )
    if path.exists():
        shutil.rmtree(path)
