"""`data.folds=10` on the command line: a trial for each fold, each measured on the fold that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqtrain.cli.arguments import say
from seqtrain.cli.evaluate import evaluate
from seqtrain.cli.looks import kept_in_run
from seqtrain.compare.folds import fold_of
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.runs.evaluations import kept
from seqtrain.sweeps.folder import Sweep, Trial

if TYPE_CHECKING:
    from pathlib import Path

FOLDS, FOLD, TEST = "data.folds", "data.fold", "test"


def asks_for_all(words: Sequence[str]) -> bool:
    """Whether cross-validation is asked for, of all folds: such a command is a sweep, with -m or without."""
    return _value(words, FOLDS) not in (None, "null") and _value(words, FOLD) is None


def expanded(words: Sequence[str]) -> list[str]:
    """The words of a sweep, with one that takes each fold in turn where all are asked for.

    Raises:
        UserError: the number of folds is none, or several.
    """
    if not asks_for_all(words):
        return list(words)
    value = str(_value(words, FOLDS))
    # Several numbers of folds in one sweep would have no common fold to be compared on.
    if not value.isdecimal() or int(value) < 2:
        raise UserError(f"{FOLDS}={value}: expected one whole number from 2 on; each fold is a trial")
    # Last, so that it changes fastest: all folds of a setting are trained before the next setting.
    return [*words, f"{FOLD}={','.join(map(str, range(int(value))))}"]


def is_swept(words: Sequence[str]) -> bool:
    """Whether the trials of a sweep are folds."""
    value = _value(words, FOLD)
    return value is not None and "," in value


def measure(sweep: Sweep) -> list[Path]:
    """Measures the finished trials of folds on their folds, those that have not been; gives their runs.

    Training does not read the fold: it chooses its checkpoint by validation rows of its own.
    """
    measured = []
    for trial in sweep.trials():
        if not _is_fold(trial):
            continue
        # A sweep that was resumed has measured some before: a second look would tell the same.
        measured.append(trial.path)
        if kept(trial.path).newest(TEST, "best") is not None:
            continue
        try:
            # With baselines: whether a network is better than a linear model is asked of what neither has seen.
            kept_in_run(evaluate(str(trial.path), TEST, "best", None, with_baselines=True), None)
        except UserError as fault:  # the other folds have figures all the same, and compare names this one
            for line in fault.lines:
                say(f"trial {trial.name}: not measured on its fold: {line}")
    if measured:
        say(f"{len(measured)} trials were measured on the folds that they have not seen")
    return measured


def _is_fold(trial: Trial) -> bool:
    return trial.status == "finished" and fold_of(Run(trial.path).config) is not None


def _value(words: Sequence[str], key: str) -> str | None:
    """The last value that a key is given; None where it is not named."""
    from seqtrain.config.check import key_of  # imports Hydra, which other commands do without

    found = None
    # The last one counts, as Hydra has it.
    for word in words:
        if key_of(word) == key:
            found = word.partition("=")[2].strip()
    return found
