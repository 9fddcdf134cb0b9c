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

# The first import of a package binds its name in `seqtrain`. Imported here, it comes before the function of that name,
# which then replaces it.
import seqtrain.compare  # noqa: F401
from seqtrain.config.trust import trusting
from seqtrain.errors import UserError
from seqtrain.inference.trained import Trained
from seqtrain.training.callbacks.signals import Interrupted, Signals

if TYPE_CHECKING:
    from seqtrain.compare.compared import Compared
    from seqtrain.compare.entries import Axis, Checkpoint


CHECKPOINTS = ("best", "last")

# Held while a training runs: torch's random numbers, threads and signals belong to the whole process.
_TRAINING = threading.Lock()


def load(run: str | Path, *, trust: Sequence[str] = (), checkpoint: Literal["best", "last"] = "best") -> Trained:
    """Open a run directory or an export. Nothing in it can execute.

    Args:
        run: Path of the run or export.
        trust: Packages whose classes its config may name.
        checkpoint: "best" by the task's monitored metric, or "last".

    Raises:
        UserError: There is no run, it has no checkpoint, or an option has an invalid value.
    """
    from seqtrain.inference.opened import open_run

    check_words("run", run)
    check_list("trust", trust)
    check_choice("checkpoint", checkpoint, CHECKPOINTS)
    with trusting(trust):
        return Trained(open_run(run, checkpoint))


def train(*overrides: str, trust: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Trained:
    """Train as `seqtrain train OVERRIDE ...` does and open the run.

    It works in any thread, but only one training runs at a time in a process. In the main thread an interrupt (Ctrl-C,
    or a notebook's stop) ends it at the next step, with a checkpoint from which `seqtrain resume` continues.

    Args:
        overrides: Overrides such as "model=gpt" or "model.dim=256".
        trust: Packages whose classes the config may name.
        config_dirs: Folders with your own configs.

    Raises:
        UserError: The caller can fix it; also if another training runs in this process.
        KeyboardInterrupt: It was interrupted.
    """
    check_words("override", *overrides)
    check_list("trust", trust)
    check_list("config_dirs", config_dirs)
    with alone(), trusting(trust):
        return _train(overrides, config_dirs)


def sweep(*overrides: str, trust: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Compared:
    """Train as `seqtrain train -m OVERRIDE ...` does, each trial in its own processes, and compare the runs.

    A line on standard error reports each trial that begins or ends. An interrupt (Ctrl-C, or a notebook's stop) in the
    main thread ends the sweep: each trial saves, and `seqtrain resume SWEEP` continues. A trial that failed or was
    refused does not end it: the comparison's `remarks` say which and why.

    Args:
        overrides: Overrides such as "model=lstm,gpt", "seed=1,2,3" or "sweep=optuna".
        trust: Packages whose classes the configs may name.
        config_dirs: Folders with your own configs.

    Returns:
        The comparison of its runs, as `compare` returns it; its `paths` name the sweep's folder.

    Raises:
        UserError: The caller can fix it; also if another training runs in this process, or no trial could begin.
        KeyboardInterrupt: It was interrupted.
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
        metric: Metric of validation, such as "loss". None: the one that the task is compared by.
        x: "steps", "tokens", "seconds" or "flops": compare at the largest x that all finished runs have reached.
        checkpoint: "final", or "best" for each run's best validation.
        across: Conditions in which runs of one group may differ although that makes them incomparable, such as
            ["train"]. The first sentence of the verdict says what it does not mean for that reason.
        by: Further properties that separate runs, such as ["commit"], ["label"], or keys of the config.
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
            "a training runs in this process already, and both would draw from one source of random numbers; "
            "wait for it, or start this one in another process"
        )
    try:
        yield
    finally:
        _TRAINING.release()


@contextlib.contextmanager
def interruptible(words: str = "it was interrupted") -> Iterator[None]:
    """Restore the notebook's number of threads, which training changes, and convert SIGINT into KeyboardInterrupt."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    except Interrupted as interrupted:
        if interrupted.number != signal.SIGINT:  # the process is being ended, not the cell
            raise
        raise KeyboardInterrupt(words) from None
    finally:
        torch.set_num_threads(threads)


def check_list(name: str, value: Sequence[str | Path]) -> None:
    """Raise UserError unless the value is a list of texts: a single text would be read as a list of letters."""
    if isinstance(value, str | Path):
        raise UserError(f"{name}={str(value)!r}: expected a list; write {name}=[{str(value)!r}]")
    if not isinstance(value, Sequence) or not all(isinstance(item, str | Path) for item in value):
        raise UserError(f"{name}={value!r}: expected a list of texts; leave it out for none")


def check_words(name: str, *values: object) -> None:
    """Raise UserError for an argument that is neither a text nor a path."""
    for value in values:
        if not isinstance(value, str | os.PathLike):
            raise UserError(
                f"{name}={reprlib.repr(value)}: expected a text or a path; several are arguments of their own"
            )


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise UserError for an argument that is not one of the choices, instead of reading it as one of them."""
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
            "dry_run=true: leaves no run to open; use the command line, or seqtrain.experiment.dry_run.dry_run"
        )
    request = Request(list(overrides), directories, ("seqtrain.train", *overrides))
    with interruptible("the training was interrupted; it can be resumed"):
        run = start(composed, request)
    return Trained(open_run(run.path))


def _sweep(overrides: Sequence[str], config_dirs: Sequence[str | Path]) -> Path:
    """Train the sweep to its end; return its folder."""
    from seqtrain.sweeps import attempts

    if "dry_run=true" in overrides:
        raise UserError("dry_run=true: leaves no runs to compare; use `seqtrain train -m --dry-run`")
    # A stop reaches each trial, which saves; Python's own exception could come in the middle of that.
    with interruptible("the sweep was interrupted; `seqtrain resume` goes on with it"), Signals():
        sweep = attempts.start(overrides, tuple(map(Path, config_dirs)))
    sweep.close()  # this process may go on for hours, and another one may want to resume it
    return sweep.path
