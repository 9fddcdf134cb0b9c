"""seqtrain from Python, second part: cost, memory and gradients of models, measured as the commands of these names do.

Each function returns the record that its command writes as COMMAND.json: plain dicts, lists and numbers. A list of rows
converts directly to a pandas DataFrame. Options are the command's flags; their defaults are in the command's help.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from seqtrain.api import alone, check_list, check_words, interruptible
from seqtrain.config.trust import trusting
from seqtrain.errors import UserError


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
        out: Folder for profile.json and the pictures. None: none are kept.
        lengths: Lengths T of the grid, in tokens.
        dims: Widths d of the grid.
        at_dim: Width at which all lengths are read.
        at_length: Length, in tokens, at which all widths are read.
        repeats: How often each size is timed.
        threads: Threads that torch uses for it.
        trust: Packages whose classes the config may name.
        config_dirs: Folders with your own configs.

    Returns:
        "cost", "models" (counted and timed, with fitted exponents), "crossovers", and "numbers" by name.

    Raises:
        UserError: The caller can fix it.
    """
    options = {"lengths": lengths, "dims": dims, "at-dim": at_dim, "at-length": at_length}
    options |= {"repeats": repeats, "threads": threads}
    return _measured("profile", ["-m", *_words(overrides)], out, options, trust, config_dirs)


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
        out: Folder for gradients.json and the picture. None: none are kept.
        checkpoint: Checkpoint of a run. None: the best.
        whole: Measure the model itself, without the truncation of training.
        distance: Largest distance, in tokens.
        samples: Losses in each lane, or example.
        trust: Packages whose classes the config may name.
        config_dirs: Folders with your own configs.

    Returns:
        "models" ("untrained", and of a run "trained": norms by layer and distance, half-life, rate), and "numbers" by
        name.

    Raises:
        UserError: The caller can fix it.
    """
    words = [*(["--whole"] if whole else []), *_words(of)]
    given = {"distance": distance, "samples": samples, "checkpoint": checkpoint}
    return _measured("gradients", words, out, given, trust, config_dirs)


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
        out: Folder for memory.json and the pictures. None: none are kept.
        split: Split whose text is read.
        checkpoint: "best" by the task's monitored metric, or "last".
        context: Longest context, in tokens.
        targets: Tokens that are predicted from each context.
        tolerance: Nats a token within which two losses count as equal.
        trust: Packages whose classes its config may name.

    Returns:
        "by_context", "since_reset" and "in_chunk" (rows), "verdict" (sentences), "is_lower_bound" (True if the loss
        still falls at the longest context), and "numbers" by name.

    Raises:
        UserError: The caller can fix it.
    """
    words = [f"--split={split}", f"--checkpoint={checkpoint}", *_words([run])]
    options = {"context": context, "targets": targets, "tolerance": tolerance}
    return _measured("memory", words, out, options, trust)


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
        out: Folder for scale.json, the picture and the runs, which a second call reuses. None: none are kept.
        flops: Budgets of the ladder, in FLOPs.
        hold_back: Budget that is predicted, in FLOPs.
        seeds: Trainings of each budget.
        tokens_per_parameter: Ratio by which a budget is divided.
        trust: Packages whose classes the configs may name.

    Returns:
        "rungs" (rows), "models" (law, prediction, measured), and "numbers" by name.

    Raises:
        UserError: The caller can fix it.
        KeyboardInterrupt: It was interrupted; with `out`, a second call continues.
    """
    options = {"flops": flops, "hold-back": hold_back, "seeds": seeds, "tokens-per-parameter": tokens_per_parameter}
    return _measured("scale", _words(overrides), out, options, trust)


def _measured(
    command: str,
    words: list[str],
    out: str | Path | None,
    options: dict[str, Any],
    trust: Sequence[str] = (),
    config_dirs: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Return the record of a command with these words and flags. A flag that is None takes the command's default."""
    if out is not None:
        check_words("out", out)
    check_list("trust", trust)
    check_list("config_dirs", config_dirs)
    # Through the parser of the command, so that ranges and errors are the same.
    for flag, value in options.items():
        if value is not None:
            words.append(f"--{flag}={_text(value)}")
    for flag, values in (("--trust", trust), ("--config-dir", config_dirs)):
        for value in values:
            words += [flag, str(value)]
    # Imported here: a notebook that compares runs need not load what measures them.
    module = importlib.import_module(f"seqtrain.cli.{command}")
    # Exclusive: measuring draws weights and sets threads, which affect the whole process.
    with alone(), trusting(trust), interruptible():
        if out is not None:
            return module.measured([*words, f"--out={out}"]).record
        # Pictures are drawn anyway; they take little of the time.
        with tempfile.TemporaryDirectory(prefix=f"seqtrain_{command}_") as folder:
            return module.measured([*words, f"--out={folder}"]).record


def _words(words: Sequence[str | Path]) -> list[str]:
    """Return the words as texts. Raises UserError for a flag."""
    check_words("argument", *words)
    texts = [str(word) for word in words]
    for text in texts:
        if text.startswith("-"):
            raise UserError(f"{text}: flags of the command are keyword arguments here")
    return texts


def _text(value: Any) -> str:
    """Return the value as typed on a command line; several values are joined by commas."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
