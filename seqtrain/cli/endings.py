"""How a training ends otherwise than done: what the summary says of it, and one line for a person with what to do."""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.cli.arguments import say
from seqtrain.config.preflight import SHARED_MEMORY, is_full
from seqtrain.distributed import ranks
from seqtrain.errors import NonFinite, OutOfMemory, RunFailed, Unavailable, UserError
from seqtrain.files.atomic import listed
from seqtrain.runs.directory import Run
from seqtrain.terminal import pasted
from seqtrain.training.callbacks.guards import is_out_of_memory, out_of_memory_words
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from seqtrain.experiment import Experiment


@contextlib.contextmanager
def told(experiment: Experiment) -> Iterator[None]:
    """Has summary.json and the loggers say how the attempt ended, whatever ends it, and lets the run go."""
    run = experiment.run
    try:
        yield
    except Interrupted as interrupted:
        if not experiment.begun or run.summary.status not in ("finished", "pruned"):  # else all is written
            _conclude(experiment, status="interrupted")
            say_interrupted(run, interrupted.number)
        raise
    except UserError as error:
        # A run that goes on may find again what is wanting; one that has not begun is removed either way.
        unlucky = isinstance(error, Unavailable) and next(run.records(), None) is not None
        _conclude(experiment, status="failed" if unlucky else "refused", reason=str(error))
        raise
    except Exception as error:
        reason, line = verdict(run, error)
        checkpoint, session = experiment.attempt.checkpoint, experiment.session
        if line is None and checkpoint is not None and session is not None and not session.learner.began:
            line = UserError(f"checkpoint {checkpoint}: this run cannot go on from it: {reason}")
        _conclude(experiment, status="failed", reason=reason)
        if line is None:  # a bug of ours
            raise
        raise line from error
    finally:
        run.close()


def _conclude(experiment: Experiment, **ending: str) -> None:
    """Writes how the attempt ended, unless that is just what cannot be written any more, and tells the loggers.

    Where it ended before it had begun, the run stands as it stood.
    """
    if not experiment.begun:
        return
    with contextlib.suppress(OSError):
        experiment.summary.update(**ending)
        experiment.run.write_summary(experiment.summary)
    if experiment.session is not None:
        experiment.session.end_loggers(experiment.run)


def verdict(run: Run, error: Exception) -> tuple[str, Exception | None]:
    """The reason for the summary, and what to raise in one line; None for what nobody foresaw."""
    if isinstance(error, NonFinite):
        return str(error), NonFinite(
            f"{error}; {_last_good(run)}; try a smaller optimizer.lr or trainer.grad_clip in a new run"
        )
    if is_out_of_memory(error):
        reason = out_of_memory_words(error)
        return reason, OutOfMemory(f"{reason}; {_last_good(run)}")
    if ranks.is_loss(error):
        reason = "another process of the run has gone"
        return reason, ranks.PeerLost(reason)
    if isinstance(error, RunFailed):
        return str(error), error
    if "DataLoader worker" in str(error):  # torch's own words
        reason = f"a data worker died, killed by hand, or for want of memory or of room in {SHARED_MEMORY}"
        return reason, RunFailed(f"{reason}: `{_resume(run)} data.workers=0` does without; {_last_good(run)}")
    if isinstance(error, OSError) and run.lost():
        reason = "its directory, or the lock in it, was removed or moved while it was trained"
        return reason, Unavailable(f"run {run.path}: {reason}; resume it where it is now, or start a new run")
    remedy = _remedy(run, error) if isinstance(error, OSError) else None
    again = f"then `{_resume(run)}`"
    reason = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return reason, None if remedy is None else Unavailable(f"run {run.path}: {remedy}, {again}")


@contextlib.contextmanager
def writing(run: Run, then: str) -> Iterator[None]:
    """Turns what keeps the run's files from being written into a UserError that says what to do, and what `then`."""
    try:
        yield
    except OSError as error:
        remedy = _remedy(run, error)
        if remedy is None:
            raise
        raise Unavailable(f"run {run.path}: {remedy}, then {then}") from error


def _remedy(run: Run, error: OSError) -> str | None:
    """What keeps the run's files from being written, and what to do; None where it is about something else."""
    if error.errno == errno.ENOSPC and error.filename is None and is_full(SHARED_MEMORY):
        return f"{SHARED_MEMORY} is full, which data.workers need; make room there"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room"
    if error.errno == errno.EFBIG:
        return "no file may become so large here; raise the limit (ulimit -f)"
    if error.filename is not None and run.path.absolute() in Path(str(error.filename)).absolute().parents:
        return f"{error.filename} cannot be written ({error.strerror}); mend that"
    return None


def say_interrupted(run: Run, number: int) -> None:
    say(f"interrupted by {signal.Signals(number).name}: {going_on(run)}")


def going_on(run: Run) -> str:
    where = "goes on from the last checkpoint" if _saved(run) else "begins again: no checkpoint was saved yet"
    return f"`{_resume(run)}` {where}"


def _resume(run: Run) -> str:
    return pasted("seqtrain", "resume", run.path)


def _last_good(run: Run) -> str:
    saved = _saved(run)
    return f"the last good checkpoint is {saved[-1]}" if saved else "no checkpoint was saved yet"


def _saved(run: Run) -> list[str]:
    """The names of the checkpoints, for words about another trouble, which their own must not hide."""
    with contextlib.suppress(UserError):
        return [path.name for path in listed(run.path / "checkpoints", "step-*.ckpt")]
    return []
