"""From which step on a search may stop a trial."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.pruning import Pruning
from tests.sweeps.test_search import Killed, Runner, end, run

pytest.importorskip("optuna")

MEDIAN = {"_target_": "optuna.pruners.MedianPruner"}


def hopeless(path: Path, warmup: int, **pruner: Any) -> dict[int, bool]:
    """At which of its validations a trial is stopped that is far behind five others at each of them."""
    stopped = {}

    def ending(trial: Any) -> None:
        callback = Pruning(run=Run(trial.path), warmup=warmup)
        if trial.number < 5:
            for step in (20, 40, 60):
                callback._judged(step, {"loss": 1.0}, last=False)
            end(trial)
            return
        for step in (20, 40, 60):
            state = SimpleNamespace(fn="fit")
            trainer: Any = SimpleNamespace(state=state, global_step=step, max_steps=80, should_stop=False)
            callback.on_validation_end(trainer, SimpleNamespace(metrics={"loss": 9.0}))  # type: ignore[arg-type]
            stopped[step] = trainer.should_stop
        raise Killed

    options = {"pruner": pruner} if pruner else {}
    run(path, runner=Runner(ending), n_trials=6, **options)
    return stopped


@pytest.mark.long
def test_a_trial_that_is_far_behind_is_not_pruned_while_its_rate_warms_up_and_is_at_once_afterwards(
    tmp_path: Path,
) -> None:
    assert hopeless(tmp_path / "none", 0) == {20: True, 40: True, 60: True}
    assert hopeless(tmp_path / "short", 30) == {20: False, 40: True, 60: True}
    assert hopeless(tmp_path / "edge", 40) == {20: False, 40: False, 60: True}


def test_an_explicit_later_start_of_the_pruner_holds(tmp_path: Path) -> None:
    later = dict(MEDIAN, n_startup_trials=5, n_warmup_steps=50, interval_steps=1, n_min_trials=1)
    assert hopeless(tmp_path / "s", 20, **later) == {20: False, 40: False, 60: True}


@pytest.mark.long
def test_successive_halving_notes_rungs_of_the_warmup_at_their_own_steps(tmp_path: Path) -> None:
    halving = {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 20, "reduction_factor": 2}
    # Rungs at 20 and 40: that of 20 is let pass, that of 40 is judged as ever, and at 60 there is none.
    assert hopeless(tmp_path / "s", 30, **halving) == {20: False, 40: True, 60: False}
