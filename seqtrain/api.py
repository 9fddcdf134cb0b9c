"""seqtrain from Python: train a run or a sweep, open a run, compare runs."""

from __future__ import annotations

import contextlib
import os
import reprlib
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

# Importing the subpackage `seqtrain.compare` sets the attribute `compare` of `seqtrain`. It is imported here, first, so
# that the function of the same name replaces it and not the reverse.
import seqtrain.compare  # noqa: F401
from seqtrain.config.trust import trusting
from seqtrain.errors import UserError
from seqtrain.inference.trained import Trained
from seqtrain.training.callbacks.signals import Interrupted, Signals

if TYPE_CHECKING:
    from seqtrain.compare.compared import Compared
    from seqtrain.compare.entries import Axis, Checkpoint


CHECKPOINTS = ("best", "last")

# Held during a training: torch's random generator, its threads and signals belong to the whole process.
_TRAINING = threading.Lock()


def load(run: str | Path, *, trust: Sequence[str] = (), checkpoint: Literal["best", "last"] = "best") -> Trained:
    """Open a run directory or an export, without executing any code from it.

    Args:
        run: Path of the run or export.
        trust: Packages whose classes its config may name.
        checkpoint: "best" by the task's monitored metric, or "last".

    Raises:
        UserError: The path is not a run, the run has no checkpoint, or an option has an invalid value.
    """
    from seqtrain.inference.opened import open_run

    check_words("run", run)
    check_list("trust", trust)
    check_choice("checkpoint", checkpoint, CHECKPOINTS)
    with trusting(trust):
        return Trained(open_run(run, checkpoint))


def train(*overrides: str, trust: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Trained:
    """Train as `seqtrain train OVERRIDE ...` does and open the run.

    It works in any thread, but only one training runs at a time in a process. In the main thread, an interrupt (Ctrl-C,
    or a notebook's stop button) ends the training at the next step and saves a checkpoint for `seqtrain resume`.

    Args:
        overrides: Overrides such as "model=gpt" or "model.dim=256".
        trust: Packages whose classes the config may name.
        config_dirs: Folders with your own configs.

    Raises:
        UserError: The config or the data is invalid, or another training is running in this process.
        KeyboardInterrupt: The training was interrupted.
    """
    check_words("override", *overrides)
    check_list("trust", trust)
    check_list("config_dirs", config_dirs)
    with alone(), trusting(trust):
        return _train(overrides, config_dirs)


def sweep(*overrides: str, trust: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Compared:
    """Train as `seqtrain train -m OVERRIDE ...` does, each trial in its own processes, and compare the runs.

    A line on standard error reports when a trial begins or ends. In the main thread, an interrupt (Ctrl-C, or a
    notebook's stop button) ends the sweep: each trial saves a checkpoint, and `seqtrain resume SWEEP` continues. A
    trial that fails or is refused does not end the sweep: the comparison's `remarks` name it with the reason.

    Args:
        overrides: Overrides such as "model=lstm,gpt", "seed=1,2,3" or "sweep=optuna".
        trust: Packages whose classes the configs may name.
        config_dirs: Folders with your own configs.

    Returns:
        The comparison of the sweep's runs, as `compare` returns it; its `paths` contains the sweep's folder.

    Raises:
        UserError: The config is invalid, another training is running in this process, or no trial could begin.
        KeyboardInterrupt: The sweep was interrupted.
    """
    check_words("override", *overrides)
    check_list("trust", trust)
    check_list("config_dirs", config_dirs)
    with alone(), trusting(trust):
        return compare(_sweep(overrides, config_dirs))


def compare(
    *paths: str | Path,
    metric: str | None = None,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    across: Sequence[str] = (),
    by: Sequence[str] = (),
    where: Sequence[str] = (),
) -> Compared:
    """Compare runs as `seqtrain compare PATH ...` does, for notebooks: DataFrames, sentences, and curves.

    Args:
        paths: Runs, sweeps, or folders of them.
        metric: Validation metric, such as "loss". None: the task's default metric.
        x: "steps", "tokens", "seconds" or "flops": compare at the largest x that all finished runs have reached.
        checkpoint: "final", or "best" for each run's best validation.
        across: Conditions, such as ["train"], in which runs of one group may differ although such runs are not
            comparable in general. The first sentence of the verdict states the limits of that comparison.
        by: Further properties that separate variants, such as ["commit"], ["label"], or keys of the config.
        where: Conditions that select runs, such as ["model=lstm,gpt", "seed=1"].

    Returns:
        The comparison of the runs as they are now. Call it again after further training.

    Raises:
        UserError: A path holds no run, no run has the metric, or an option has an invalid value.
    """
    from seqtrain.compare import compared

    check_words("path", *paths)
    check_list("across", across)
    check_list("by", by)
    check_list("where", where)
    return compared.compare(paths, metric=metric, x=x, checkpoint=checkpoint, across=across, by=by, where=where)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Allow one training at a time in this process. Raises UserError for a second one."""
    if not _TRAINING.acquire(blocking=False):
        raise UserError(
            "a training is already running in this process, and both would use the same random generator; "
            "wait for it, or start this one in another process"
        )
    try:
        yield
    finally:
        _TRAINING.release()


@contextlib.contextmanager
def interruptible(words: str = "it was interrupted") -> Iterator[None]:
    """Convert SIGINT into KeyboardInterrupt, and restore torch's number of threads, which training changes."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    except Interrupted as interrupted:
        if interrupted.number != signal.SIGINT:  # another signal ends the whole process, not just the notebook's cell
            raise
        raise KeyboardInterrupt(words) from None
    finally:
        torch.set_num_threads(threads)


def check_list(name: str, value: Sequence[str | Path]) -> None:
    """Raise UserError unless the value is a list of strings: one string would be read as a list of letters."""
    if isinstance(value, str | Path):
        raise UserError(f"{name}={str(value)!r}: expected a list; write {name}=[{str(value)!r}]")
    if not isinstance(value, Sequence) or not all(isinstance(item, str | Path) for item in value):
        raise UserError(f"{name}={value!r}: expected a list of strings; leave it out for none")


def check_words(name: str, *values: object) -> None:
    """Raise UserError for an argument that is neither a string nor a path."""
    for value in values:
        if not isinstance(value, str | os.PathLike):
            raise UserError(
                f"{name}={reprlib.repr(value)}: expected a string or a path; pass several as separate arguments"
            )


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise UserError for an argument that is not one of the choices."""
    if value not in choices:
        raise UserError(f"{name}={value!r}: expected {' or '.join(map(repr, choices))}")


def _train(overrides: Sequence[str], config_dirs: Sequence[str | Path]) -> Trained:
    from seqtrain.config import check
    from seqtrain.experiment.start import Request, start
    from seqtrain.inference.opened import open_run

    directories = tuple(map(Path, config_dirs))
    composed = check.compose(list(overrides), directories)
    if composed.config.dry_run:
        raise UserError(
            "dry_run=true: a dry run leaves no run to open; "
            "use the command line, or seqtrain.experiment.dry_run.dry_run"
        )
    request = Request(list(overrides), directories, ("seqtrain.train", *overrides))
    with interruptible("the training was interrupted; it can be resumed"):
        run = start(composed, request)
    return Trained(open_run(run.path))


def _sweep(overrides: Sequence[str], config_dirs: Sequence[str | Path]) -> Path:
    """Train the sweep to its end; return its folder."""
    from seqtrain.sweeps import attempts

    if "dry_run=true" in overrides:
        raise UserError("dry_run=true: a dry run leaves no runs to compare; use `seqtrain train -m --dry-run`")
    # `Signals` forwards an interrupt to each trial, which saves; a KeyboardInterrupt could come in the middle of that.
    with interruptible("the sweep was interrupted; `seqtrain resume` continues it"), Signals():
        sweep = attempts.start(overrides, tuple(map(Path, config_dirs)))
    sweep.close()  # this process may live for hours, and another one may resume the sweep meanwhile
    return sweep.path
