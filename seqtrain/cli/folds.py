"""Cross-validation on the command line (`data.folds=10`): one trial for each fold, measured on the unseen fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqtrain.cli.evaluate import evaluate
from seqtrain.cli.looks import kept_in_run
from seqtrain.compare.folds import fold_of
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.runs.evaluations import kept
from seqtrain.sweeps.folder import Sweep, Trial

if TYPE_CHECKING:
    from pathlib import Path

FOLDS, FOLD, TEST = "data.folds", "data.fold", "test"


def asks_for_all(words: Sequence[str]) -> bool:
    """Return True if cross-validation over all folds is asked for. Such a command is a sweep, with or without -m."""
    return _value(words, FOLDS) not in (None, "null") and _value(words, FOLD) is None


def expanded(words: Sequence[str]) -> list[str]:
    """Return the words of a sweep, with an override that lists all folds if all are asked for.

    Raises:
        UserError: If the number of folds is not one whole number from 2 on.
    """
    if not asks_for_all(words):
        return list(words)
    from seqtrain.config.conf_files import ConfFiles  # imports Hydra, which other commands do without

    value = str(_value(words, FOLDS))
    # Several numbers of folds in one sweep would have no common fold to be compared on.
    if not value.isdecimal() or int(value) < 2:
        raise UserError(f"{FOLDS}={value}: expected one whole number from 2 on; each fold is a trial")
    chosen = _value(words, "data")
    options = ConfFiles().content("data", chosen) if chosen else {}
    if options and "folds" not in options:
        raise UserError(f"{FOLDS}={value}: data={chosen} has no folds; cross-validation is of labelled text, data=labelled")
    # Last, so that it changes fastest: all folds of a setting are trained before the next setting.
    return [*words, f"{FOLD}={','.join(map(str, range(int(value))))}"]


def is_swept(words: Sequence[str]) -> bool:
    """Return True if the trials of a sweep are folds."""
    value = _value(words, FOLD)
    return value is not None and "," in value


def measure(sweep: Sweep) -> list[Path]:
    """Measure finished trials on their folds, unless already measured; return the runs that have been.

    Training does not read the fold. It chooses its checkpoint by validation rows of its own.
    """
    for trial in unmeasured(sweep):
        try:
            # With baselines: whether a network is better than a linear model is asked of what neither has seen.
            kept_in_run(evaluate(str(trial.path), TEST, "best", None, with_baselines=True), None)
        except UserError as fault:  # the other folds have figures all the same, and compare names this one
            for line in fault.lines:
                say(f"trial {trial.name}: not measured on its fold: {line}")
    left = [trial.path for trial in unmeasured(sweep)]
    measured = [trial.path for trial in sweep.trials() if _is_fold(trial) and trial.path not in left]
    if measured:
        say(f"{len(measured)} trials were measured on the folds that they have not seen")
    return measured


def unmeasured(sweep: Sweep) -> list[Trial]:
    """Return the finished folds without a figure. A second look at the others would tell the same."""
    return [trial for trial in sweep.trials() if _is_fold(trial) and kept(trial.path).newest(TEST, "best") is None]


def _is_fold(trial: Trial) -> bool:
    return trial.status == "finished" and fold_of(Run(trial.path).config) is not None


def _value(words: Sequence[str], key: str) -> str | None:
    """Return the last value given for a key, or None if the key is not named."""
    from seqtrain.config.check import key_of  # imports Hydra, which other commands do without

    found = None
    # The last one counts, as Hydra has it.
    for word in words:
        if key_of(word) == key:
            found = word.partition("=")[2].strip()
    return found
