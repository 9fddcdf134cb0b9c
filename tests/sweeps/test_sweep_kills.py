"""A sweep that is killed at any file event goes on, by the same start or by a resume, to what it would have been."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from benchmarks.kills.hook import run_forked
from seqtrain.cli.trial import _clear
from seqtrain.files.atomic import remove_temporary
from seqtrain.runs.directory import CONFIG, Run
from seqtrain.sweeps.folder import Asked, Sweep, Trial, is_sweep
from seqtrain.sweeps.grid import Grid
from seqtrain.sweeps.search import Search
from seqtrain.sweeps.sweeper import SweepAttempt, Sweeper
from seqtrain.training.callbacks.pruning import Pruning
from tests.sweeps.test_search import config, defaults

optuna = pytest.importorskip("optuna")

LOSSES = (1.0, 1.3, 0.8, 1.2)  # of the trials, by number; with two to compare with, the bad ones are pruned
GRID = ("seed=1,2", "task=next_token")
SEARCH = ("optimizer.lr=interval(1e-4,1e-1)", "model.dim=range(16,65,16)", "task=next_token")
HALVING = {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 20, "reduction_factor": 2}
TPE = {"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 2}


@dataclass
class Runner:
    """Stands for a launcher: each trial leaves, one file after the other, what a trial leaves."""

    pulled: str = "started"
    together: int | None = 1

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        for trial in trials:
            trial.conclude("running", pid=os.getpid())
            remove_temporary(trial.path)
            if not (trial.path / CONFIG).exists():
                _clear(trial.path)
                run = Run.create(trial.path)
                run.write_config({})
                run.close()
            loss = LOSSES[trial.number]
            reason = ""
            if Sweep.open(trial.sweep).asked.kind == "optuna":
                pruning = Pruning(run=Run(trial.path))
                for step in (20, 40, 80):
                    reason = reason or pruning._judged(step, {"loss": loss}, last=False)
            status = "pruned" if reason else "finished"
            found = {"validation": {"loss": loss}}
            Run(trial.path).update_summary(status=status, reason=reason, best=found, metrics=found)
            trial.conclude(status, reason)
            yield trial


def run_attempt(folder: Path, words: tuple[str, ...]) -> None:
    """Begins the sweep `folder`/s, or goes on with it: what a job that is requeued does; trials are not composed."""
    path, searches = folder / "s", words is SEARCH
    if is_sweep(path):
        sweep = Sweep.open(path)
        sweep.claim()
        sweep.prepare()
    else:
        sweep = Sweep.create(path, Asked(words, "optuna" if searches else "grid"))
    sweeper = Search(**{**defaults(), "n_trials": 4, "sampler": TPE, "pruner": HALVING}) if searches else Grid()
    sweeper.folder, sweeper.attempt = sweep, SweepAttempt(Runner(), say=lambda _: None)
    with mock.patch.object(Sweeper, "_check"), mock.patch.object(Search, "_corner", return_value=config()):
        sweeper.sweep(words)
        sweep.write_index()  # as the command does in the end


def outcome(folder: Path) -> Any:
    """All that a sweep has come to."""
    path = folder / "s"
    trials = [(trial.overrides, trial.label, trial.status, trial.reason) for trial in Sweep.open(path).trials()]
    study = path / "study.db"
    known = optuna.load_study(study_name=None, storage=f"sqlite:///{study}").get_trials() if study.exists() else []
    told = [(each.number, each.state.name, each.params, each.values, each.intermediate_values) for each in known]
    index = json.loads((path / "index.json").read_text())
    return trials, told, index, sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def check(words: tuple[str, ...], tmp_path: Path, chosen: Callable[[int], Iterable[int]]) -> None:
    """Kills a sweep at the chosen ones of its file events, and holds what becomes of it against one left alone."""
    for prepare in (defaults, config):  # composed, and optuna's storage imported, once, before any fork
        prepare()
    optuna.create_study(storage="sqlite://")
    whole = tmp_path / "whole"
    whole.mkdir()
    _, count = run_forked(lambda: run_attempt(whole, words), below=whole)
    expected = outcome(whole)
    for number in chosen(count):
        folder = tmp_path / f"killed-{number}"
        folder.mkdir()
        work = functools.partial(run_attempt, folder, words)
        assert run_forked(work, below=folder, at=number)[0]
        run_forked(work, below=folder)
        assert outcome(folder) == expected, f"killed at event {number} of {count}"


def test_a_grid_killed_at_some_file_events_ends_as_one_left_alone(tmp_path: Path) -> None:
    check(GRID, tmp_path, lambda count: [3, 5, count // 2, count - 6])


@pytest.mark.long
def test_a_grid_killed_at_a_third_of_its_file_events_ends_as_one_left_alone(tmp_path: Path) -> None:
    # A file is opened, then renamed: a step of two would meet one of them alone.
    check(GRID, tmp_path, lambda count: range(1, count + 1, 3))


@pytest.mark.long
def test_a_search_with_pruning_killed_at_some_file_events_ends_as_one_left_alone(tmp_path: Path) -> None:
    # Each event would be half an hour of one core; a prime step meets all that is written in turn.
    check(SEARCH, tmp_path, lambda count: range(4, count + 1, 23))
