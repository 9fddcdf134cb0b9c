"""After a search: the commands that repeat its best trials with new seeds, for the best of many is partly luck."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqtrain.config.check import key_of
from seqtrain.files.atomic import exists
from seqtrain.runs.directory import CONFIG, Run
from seqtrain.sweeps.folder import Sweep, Trial
from seqtrain.sweeps.settings import quoted
from seqtrain.terminal import pasted

BEST = 3  # trials that are repeated
SEEDS = 3  # with which each of them is repeated
PLAIN = re.compile(r"[\w./-]+")  # a path that Hydra's grammar reads without quotes


def lines(sweep: Sweep, numbers: Sequence[int], *, typed_in: Path | None = None) -> list[str]:
    """What to type after a search, and why; nothing where no two trials were there to pick from.

    Args:
        sweep: the sweep of the search.
        numbers: of its best trials, the best first.
        typed_in: the folder in which the command was typed; None: the working folder.
    """
    if len(numbers) < 2:
        return []
    trials = sweep.trials()
    num_tried = sum(trial.status in ("finished", "pruned") for trial in trials)
    seeds = _new_seeds(trials)
    # A folder of sweeps, one a trial: a grid cannot list settings that differ in several keys at once.
    target = _free_folder(sweep.path)
    found = [
        f"the best of {num_tried} trials was picked by its own number, which is partly luck: expect less of it when "
        f"it is repeated. This repeats the best {len(numbers)} with {SEEDS} seeds each that the search has not used:"
    ]
    if typed_in is not None and typed_in != Path.cwd():  # relative paths are held against another folder
        found.append(pasted("cd", Path.cwd()))
    for number in numbers:
        found.append(_command(sweep, sweep.trial(number), seeds, target))
    return [*found, pasted("seqtrain", "compare", target)]


def _command(sweep: Sweep, trial: Trial, seeds: Sequence[int], target: Path) -> str:
    """The sweep over seeds that repeats one trial."""
    words = ["seqtrain", "train", "-m"]
    for package in sweep.asked.trust:
        words += ["--trust", package]
    for folder in sweep.asked.config_dirs:
        words += ["--config-dir", folder]
    # Who runs the trials stays as it was; who proposed them, and where, does not.
    for word in sweep.asked.overrides:
        if key_of(word).startswith(("hydra/launcher", "hydra.launcher")):
            words.append(word)
    for word in trial.overrides:
        if key_of(word) != "seed":
            words.append(word)
    folder = str(target / trial.name)
    if not PLAIN.fullmatch(folder):
        folder = quoted(folder)
    return pasted(*words, f"seed={','.join(map(str, seeds))}", f"hydra.sweep.dir={folder}")


def _new_seeds(trials: Sequence[Trial]) -> list[int]:
    """The smallest seeds that no trial has had: a seed by which a trial was picked says nothing new of it."""
    used: set[Any] = set()
    for trial in trials:
        if exists(trial.path / CONFIG):
            used.add(repr(Run(trial.path).config.get("seed")))
    unused = (seed for seed in itertools.count(1) if repr(seed) not in used)
    return list(itertools.islice(unused, SEEDS))


def _free_folder(sweep: Path) -> Path:
    """Where the repeated trials go: beside the sweep, where nothing is yet."""
    target = sweep.with_name(f"{sweep.name}-repeated")
    number = 2
    while exists(target):
        target = sweep.with_name(f"{sweep.name}-repeated-{number}")
        number += 1
    return target
