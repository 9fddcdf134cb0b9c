"""Measure models from Python: `profile`, `gradients`, `memory` and `scale`, like the commands of the same names.

Each function returns the record that its command writes as COMMAND.json: plain dicts, lists and numbers. A list of rows
converts directly to a pandas DataFrame. Options are the command's flags; `seqtrain COMMAND --help` has their defaults.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.api import CHECKPOINTS, alone, check_choice, check_list, check_words, interruptible
from seqtrain.config.trust import trusting
from seqtrain.errors import UserError

if TYPE_CHECKING:
    from seqtrain.analysis.measured import Measured


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
