"""Endings of a training other than success: their entry in the summary, and one line that says what to do."""

from __future__ import annotations

import contextlib
import errno
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seqtrain.config.preflight import SHARED_MEMORY, is_full
from seqtrain.distributed import ranks
from seqtrain.distributed.launch import Outcome
from seqtrain.distributed.ranks import say
from seqtrain.errors import NonFinite, OutOfMemory, RunFailed, Unavailable, UserError
from seqtrain.files.atomic import listed, write_text
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.tasks.hooks import failed_hook
from seqtrain.terminal import pasted
from seqtrain.training.callbacks.guards import is_out_of_memory, out_of_memory_words
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from seqtrain.training.session import Session


# Exit codes by which a process of a group reports the class of an error to the process that started it.
UNAVAILABLE = 75  # EX_TEMPFAIL in sysexits.h
TRACEBACK = "traceback.txt"  # traceback of an error in a third-party task
KINDS: dict[int, type[UserError]] = {2: UserError, UNAVAILABLE: Unavailable}


class Ending(Protocol):
    """The members of an attempt that its ending needs."""

    run: Run
    summary: Summary
    session: Session | None
    announced: bool


@contextlib.contextmanager
def record_ending(experiment: Ending, checkpoint: Path | None) -> Iterator[None]:
    """Record in summary.json and the loggers how the attempt ended, for any exception. Close the run.

    Args:
        experiment: The attempt.
        checkpoint: Checkpoint that it resumes from; None: from the start.
    """
    run = experiment.run
    try:
        yield
    except Interrupted as interrupted:
        # If the signal came after the last step, when everything is written, the run is finished.
        if not experiment.announced or run.summary.status not in ("finished", "pruned"):
            _conclude(experiment, status="interrupted")
            say_interrupted(run, interrupted.number)
        raise
    except UserError as error:
        # A resume may find the missing resource again. A run without records is removed anyway.
        can_resume = isinstance(error, Unavailable) and next(run.records(), None) is not None
        _conclude(experiment, status="failed" if can_resume else "refused", reason=str(error))
        raise
    except (Exception, SystemExit) as error:  # SystemExit can only come from third-party code
        reason, line = verdict(run, error)
        session = experiment.session
        # A checkpoint may pass all checks and still fail when the trainer loads it, before the first step.
        if line is None and checkpoint is not None and session is not None and not session.learner.started:
            line = UserError(f"checkpoint {checkpoint}: this run cannot continue from it: {reason}")
        _conclude(experiment, status="failed", reason=reason)
        if line is None:  # a bug in seqtrain
            raise
        raise line from error
    finally:
        run.close()


def _conclude(experiment: Ending, **ending: str) -> None:
    """Write how the attempt ended, if possible, and end the loggers.

    An attempt that ended before it was announced changes nothing in the run.
    """
    if not experiment.announced:
        return
    with contextlib.suppress(OSError):
        _write_ending(experiment.run, experiment.summary, **ending)
    if experiment.session is not None:
        experiment.session.end_loggers(experiment.run)


def conclude_group(run: Run, outcome: Outcome) -> None:
    """Record how a group of processes ended, if they could not, and raise the error that one process would raise.

    Close the run, which holds the lock for all of them.
    """
    reason = "; ".join(outcome.lines) or "a process ended without a message"
    if outcome.code > 128 and run.summary.status == "running":  # the process that writes the summary was killed
        _write_ending(run, run.summary, status="interrupted")
        say_interrupted(run, outcome.code - 128)
    elif outcome.code == 1:
        _write_ending(run, run.summary, status="failed", reason=reason)
    run.close()
    if outcome.code > 128:
        raise Interrupted(outcome.code - 128)
    if outcome.code in KINDS:
        raise KINDS[outcome.code](*outcome.lines)
    if not outcome.code:
        return
    if "new run" in reason:  # the message already says what to do
        raise RunFailed(reason)
    raise RunFailed(f"{reason}; {how_to_go_on(run)}")


def exit_code_of(fault: UserError) -> int:
    """Return the exit code by which `conclude_group` raises a fault of the same kind."""
    return UNAVAILABLE if isinstance(fault, Unavailable) else 2


def _write_ending(run: Run, summary: Summary, **ending: str) -> None:
    """Write into summary.json how a run ended. No other function writes an ending other than success."""
    summary.update(**ending)
    run.write_summary(summary)


def verdict(run: Run, error: BaseException) -> tuple[str, Exception | None]:
    """Return the reason for the summary and the one-line error to raise, or None for an unexpected error."""
    if isinstance(error, NonFinite):
        return str(error), NonFinite(
            f"{error}; {_last_good(run)}; try a smaller optimizer.lr or trainer.grad_clip in a new run"
        )
    if is_out_of_memory(error):
        reason = out_of_memory_words(error)
        return reason, OutOfMemory(f"{reason}; {_last_good(run)}")
    if ranks.is_loss(error):
        reason = "lost another process of the run"
        return reason, ranks.PeerLost(reason)
    if isinstance(error, RunFailed):
        return str(error), error
    if "DataLoader worker" in str(error):  # torch's own words
        reason = f"a data worker died: it was killed, or memory or {SHARED_MEMORY} ran out"
        return reason, RunFailed(f"{reason}; `{_resume(run)} data.workers=0` runs without workers; {_last_good(run)}")
    if isinstance(error, OSError) and run.lost():
        reason = "its directory, or the lock in it, was removed or moved during training"
        return reason, Unavailable(f"run {run.path}: {reason}; resume it where it is now, or start a new run")
    remedy = _remedy(run, error) if isinstance(error, OSError) else None
    if remedy is not None:
        return str(error), Unavailable(f"run {run.path}: {remedy}, then `{_resume(run)}`")
    hook = failed_hook(error)
    if hook is not None:  # one line helps the author of the task more than twenty frames of Lightning
        return hook, RunFailed(f"{hook}; {_kept_traceback(run, error)}; {_last_good(run)}")
    if isinstance(error, OSError):
        return str(error), None
    return f"{type(error).__name__}: {error}", None


def _kept_traceback(run: Run, error: BaseException) -> str:
    """Write the traceback to the run's directory, if possible; return a message that says where it is."""
    path = run.path / TRACEBACK
    with contextlib.suppress(OSError):
        write_text(path, "".join(traceback.format_exception(error)))
        return f"the traceback is in {path}"
    return "SEQTRAIN_DEBUG=1 shows the traceback"


@contextlib.contextmanager
def writing(run: Run, then: str) -> Iterator[None]:
    """Turn an error in writing the run's files into a UserError with a remedy.

    Args:
        run: The run whose files are written.
        then: What to do after the remedy, for the message.
    """
    try:
        yield
    except OSError as error:
        remedy = _remedy(run, error)
        if remedy is None:
            raise
        raise Unavailable(f"run {run.path}: {remedy}, then {then}") from error


def _remedy(run: Run, error: OSError) -> str | None:
    """Return why the run's files cannot be written and what to do, or None if the error has another cause."""
    # torch's workers write to shared memory without a file name: "the disk is full" would be misleading.
    if error.errno == errno.ENOSPC and error.filename is None and is_full(SHARED_MEMORY):
        return f"{SHARED_MEMORY} is full, which data.workers need; make room there"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room"
    if error.errno == errno.EFBIG:
        return "the file would exceed the size limit; raise it (ulimit -f)"
    if error.filename is not None and run.path.absolute() in Path(str(error.filename)).absolute().parents:
        return f"{error.filename} cannot be written ({error.strerror}); correct that"
    return None


def say_interrupted(run: Run, number: int) -> None:
    """Print which signal interrupted the run, and how to resume it."""
    say(f"interrupted by {signal.Signals(number).name}: {how_to_go_on(run)}")


def how_to_go_on(run: Run) -> str:
    """Return the command that resumes the run, and where it starts from."""
    if _saved(run):
        return f"`{_resume(run)}` continues from the last checkpoint"
    return f"`{_resume(run)}` starts again from step 0: no checkpoint was saved yet"


def _resume(run: Run) -> str:
    return pasted("seqtrain", "resume", run.path)


def _last_good(run: Run) -> str:
    saved = _saved(run)
    return f"the last good checkpoint is {saved[-1]}" if saved else "no checkpoint was saved yet"


def _saved(run: Run) -> list[str]:
    """Return the names of the checkpoints, oldest first."""
    # An unreadable folder must not hide the error that is being reported.
    with contextlib.suppress(UserError):
        return [path.name for path in listed(run.path / "checkpoints", "step-*.ckpt")]
    return []
