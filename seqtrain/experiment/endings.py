"""Endings of a training other than success: the summary's entry, and one line that says what to do."""

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


# The faults that a process of a group tells the one that started it by its exit code.
UNAVAILABLE = 75  # EX_TEMPFAIL of sysexits.h
TRACEBACK = "traceback.txt"  # traceback of an error in a third-party task
KINDS: dict[int, type[UserError]] = {2: UserError, UNAVAILABLE: Unavailable}


class Ending(Protocol):
    """An attempt at a run, as far as its ending is concerned."""

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
        # A signal may come after the last step, when all is written: then the run is finished.
        if not experiment.announced or run.summary.status not in ("finished", "pruned"):
            _conclude(experiment, status="interrupted")
            say_interrupted(run, interrupted.number)
        raise
    except UserError as error:
        # What is missing may be there again when the run is resumed; a run without records is removed in any case.
        can_resume = isinstance(error, Unavailable) and next(run.records(), None) is not None
        _conclude(experiment, status="failed" if can_resume else "refused", reason=str(error))
        raise
    except (Exception, SystemExit) as error:  # SystemExit can only come from third-party code
        reason, line = verdict(run, error)
        session = experiment.session
        # A checkpoint may pass all checks and still fail when the trainer loads it, before the first step.
        if line is None and checkpoint is not None and session is not None and not session.learner.started:
            line = UserError(f"checkpoint {checkpoint}: this run cannot go on from it: {reason}")
        _conclude(experiment, status="failed", reason=reason)
        if line is None:  # a bug of ours
            raise
        raise line from error
    finally:
        run.close()


def _conclude(experiment: Ending, **ending: str) -> None:
    """Write how the attempt ended, if it can still be written, and end the loggers.

    An attempt that ended before it began changes nothing in the run.
    """
    if not experiment.announced:
        return
    with contextlib.suppress(OSError):
        _write_ending(experiment.run, experiment.summary, **ending)
    if experiment.session is not None:
        experiment.session.end_loggers(experiment.run)


def conclude_group(run: Run, outcome: Outcome) -> None:
    """Record how a group of processes ended, if they could not, and raise the error that one process would raise.

    Closes the run, which holds the lock for all of them.
    """
    reason = "; ".join(outcome.lines) or "a process ended without a word"
    if outcome.code > 128 and run.summary.status == "running":  # the one that writes it could not any more
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
    if "new run" in reason:  # it says already what to do
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
    if remedy is not None:
        return str(error), Unavailable(f"run {run.path}: {remedy}, then `{_resume(run)}`")
    hook = failed_hook(error)
    if hook is not None:  # the author of the task has more use for one line than for twenty frames of Lightning
        return hook, RunFailed(f"{hook}; {_kept_traceback(run, error)}; {_last_good(run)}")
    if isinstance(error, OSError):
        return str(error), None
    return f"{type(error).__name__}: {error}", None


def _kept_traceback(run: Run, error: BaseException) -> str:
    """Write the traceback into the run's directory, if possible; return a text that says where it is."""
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
    # torch's workers write to shared memory without a file name, and "the disk is full" would send people elsewhere.
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
    """Print which signal interrupted the run, and how to resume it."""
    say(f"interrupted by {signal.Signals(number).name}: {how_to_go_on(run)}")


def how_to_go_on(run: Run) -> str:
    """Return the command that resumes the run, and where it starts from."""
    if _saved(run):
        return f"`{_resume(run)}` goes on from the last checkpoint"
    return f"`{_resume(run)}` begins again: no checkpoint was saved yet"


def _resume(run: Run) -> str:
    return pasted("seqtrain", "resume", run.path)


def _last_good(run: Run) -> str:
    saved = _saved(run)
    return f"the last good checkpoint is {saved[-1]}" if saved else "no checkpoint was saved yet"


def _saved(run: Run) -> list[str]:
    """Return the names of the checkpoints, oldest first."""
    # A folder that cannot be listed is another trouble, and must not hide the one that is told.
    with contextlib.suppress(UserError):
        return [path.name for path in listed(run.path / "checkpoints", "step-*.ckpt")]
    return []
