"""seqtrain from Python: train a run or a sweep, open a run, compare runs, measure models.

`profile`, `gradients`, `memory` and `scale` are like the commands of these names: each returns the record that its
command writes as COMMAND.json, in plain dicts, lists and numbers. A list of rows converts directly to a pandas
DataFrame. Options are the command's flags; `seqtrain COMMAND --help` has their defaults.
"""

from __future__ import annotations

import contextlib
import os
import reprlib
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import seqtrain.compare  # noqa: F401
from seqtrain.config.trust import trusting
from seqtrain.errors import UserError
from seqtrain.inference.trained import Trained
from seqtrain.training.callbacks.signals import Interrupted, Signals

if TYPE_CHECKING:
    from seqtrain.analysis.measured import Measured
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
            "dry_run=true: a dry run leaves no run to open; use the command line, or seqtrain.experiment.start.dry_run"
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


def profile(
    *overrides: str,
    out: str | Path | None = None,
    lengths: Sequence[int] | None = None,
    dims: Sequence[int] | None = None,
    at_dim: int | None = None,
    at_length: int | None = None,
    repeats: int | None = None,
    threads: int | None = None,
    trust: Sequence[str] = (),
    config_dirs: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Measure the cost of models, as `seqtrain profile -m OVERRIDE ...` does.

    Args:
        overrides: Overrides such as "model=rnn,lstm,gpt"; every combination of values is profiled.
        out: Folder for profile.json and the plots. None: do not keep them.
        lengths: Lengths T of the grid, in tokens.
        dims: Widths d of the grid.
        at_dim: Width at which all lengths are measured.
        at_length: Length, in tokens, at which all widths are measured.
        repeats: How often each size is timed.
        threads: Number of torch threads.
        trust: Packages whose classes the config may name.
        config_dirs: Folders with your own configs.

    Returns:
        "cost", "models" (counted and timed, with fitted exponents), "crossovers", and "numbers" by name.

    Raises:
        UserError: An override or an option is invalid.
    """
    from seqtrain.analysis.profile_report import measured

    options = {"lengths": lengths, "dims": dims, "at_dim": at_dim, "at_length": at_length, "repeats": repeats}
    options |= {"threads": threads, "config_dirs": _folders(config_dirs)}
    return _record(measured, _words(overrides), out, trust, options)


def gradients(
    *of: str | Path,
    out: str | Path | None = None,
    checkpoint: Literal["best", "last"] | None = None,
    whole: bool = False,
    distance: int | None = None,
    samples: int | None = None,
    trust: Sequence[str] = (),
    config_dirs: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Measure how far back gradients reach, as `seqtrain gradients RUN|OVERRIDE ...` does.

    Args:
        of: A run, or overrides such as "model=rnn", "tbptt.k2=20".
        out: Folder for gradients.json and the plot. None: do not keep them.
        checkpoint: Checkpoint of a run. None: the best.
        whole: Measure the model without the truncation that training applies.
        distance: Largest distance, in tokens.
        samples: Number of losses sampled in each lane or example.
        trust: Packages whose classes the config may name.
        config_dirs: Folders with your own configs.

    Returns:
        "models" ("untrained", and for a run "trained": norms by layer and distance, half-life, rate), and "numbers" by
        name.

    Raises:
        UserError: The run, an override or an option is invalid.
    """
    from seqtrain.analysis.gradients_report import measured

    check_choice("checkpoint", checkpoint or "best", CHECKPOINTS)
    options = {"checkpoint": checkpoint, "whole": whole, "distance": distance, "samples": samples}
    return _record(measured, _words(of), out, trust, options | {"config_dirs": _folders(config_dirs)})


def memory(
    run: str | Path,
    *,
    out: str | Path | None = None,
    split: Literal["train", "validation", "test"] = "validation",
    checkpoint: Literal["best", "last"] = "best",
    context: int | None = None,
    targets: int | None = None,
    tolerance: float | None = None,
    trust: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure how much context a run uses and what its carried state contributes, as `seqtrain memory RUN` does.

    Args:
        run: Path of the run.
        out: Folder for memory.json and the plots. None: do not keep them.
        split: Split whose text is read.
        checkpoint: "best" by the task's monitored metric, or "last".
        context: Longest context, in tokens.
        targets: Number of tokens that are predicted from each context.
        tolerance: Difference in nats per token within which two losses count as equal.
        trust: Packages whose classes its config may name.

    Returns:
        "by_context", "since_reset" and "in_chunk" (rows), "verdict" (sentences), "is_lower_bound" (True if the loss
        still falls at the longest context), and "numbers" by name.

    Raises:
        UserError: The run or an option is invalid.
    """
    from seqtrain.analysis.memory_report import measured

    check_choice("checkpoint", checkpoint, CHECKPOINTS)
    check_choice("split", split, ("train", "validation", "test"))
    options = {"split": split, "checkpoint": checkpoint, "context": context, "targets": targets}
    return _record(measured, _words([run])[0], out, trust, options | {"tolerance": tolerance})


def scale(
    *overrides: str,
    out: str | Path | None = None,
    flops: Sequence[float] | None = None,
    hold_back: float | None = None,
    seeds: int | None = None,
    tokens_per_parameter: float | None = None,
    trust: Sequence[str] = (),
) -> dict[str, Any]:
    """Train a ladder of budgets and predict a larger rung, as `seqtrain scale OVERRIDE ...` does.

    Args:
        overrides: Overrides such as "model=lstm,gpt".
        out: Folder for scale.json, the plot and the runs, which a second call reuses. None: do not keep them.
        flops: Budgets of the ladder, in FLOPs.
        hold_back: Budget whose result is predicted, in FLOPs.
        seeds: Number of trainings per budget.
        tokens_per_parameter: Training tokens per model parameter, which splits a budget between the two.
        trust: Packages whose classes the configs may name.

    Returns:
        "rungs" (rows), "models" (law, prediction, measured), and "numbers" by name.

    Raises:
        UserError: An override or an option is invalid.
        KeyboardInterrupt: The measurement was interrupted; with `out`, a second call continues.
    """
    from seqtrain.analysis.scale_report import measured

    options = {"flops": flops, "hold_back": hold_back, "seeds": seeds, "tokens_per_parameter": tokens_per_parameter}
    return _record(measured, _words(overrides), out, trust, options)


def _record(
    measured: Callable[..., Measured],
    subject: str | list[str],
    out: str | Path | None,
    trust: Sequence[str],
    options: dict[str, Any],
) -> dict[str, Any]:
    """Return the record of a measurement. Options that are None take their defaults."""
    if out is not None:
        check_words("out", out)
    check_list("trust", trust)
    given = {name: value for name, value in options.items() if value is not None}
    # Exclusive: a measurement uses the global random generator and sets threads for the whole process.
    with alone(), trusting(trust), interruptible():
        if out is not None:
            return measured(subject, Path(out), **given).record
        # Plots are drawn in any case; that takes little of the time.
        with tempfile.TemporaryDirectory(prefix="seqtrain_") as folder:
            return measured(subject, Path(folder), **given).record


def _folders(config_dirs: Sequence[str | Path]) -> list[Path]:
    check_list("config_dirs", config_dirs)
    return list(map(Path, config_dirs))


def _words(words: Sequence[str | Path]) -> list[str]:
    """Return the arguments as strings. Raises UserError for a flag."""
    check_words("argument", *words)
    texts = [str(word) for word in words]
    for text in texts:
        if text.startswith("-"):
            raise UserError(f"{text}: flags of the command are keyword arguments here")
    return texts
