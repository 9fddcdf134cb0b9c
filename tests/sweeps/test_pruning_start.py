"""From which step on a search may stop a trial, and what it says of that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.config import check
from seqtrain.runs.directory import Run
from seqtrain.sweeps.pruning_start import first_step, waiting_line
from seqtrain.training.callbacks.pruning import Pruning
from tests.sweeps.test_search import Killed, Runner, end, run

pytest.importorskip("optuna")

MEDIAN = {"_target_": "optuna.pruners.MedianPruner"}
WARMUP = "schedule=cosine", "schedule.warmup=50", "trainer.max_steps=200"


def said(*words: str, searched: tuple[str, ...] = (), **pruner: Any) -> str:
    return waiting_line(check.compose([*WARMUP, *words]).config, MEDIAN | pruner, searched)


def test_a_trial_has_trained_one_step_at_its_full_rate_before_it_may_be_pruned() -> None:
    assert first_step(50) == 51
    assert first_step(0) == 0


def test_a_search_says_from_which_step_on_it_prunes() -> None:
    assert said() == "no trial is pruned before step 51: until then its learning rate warms up"
    assert said("schedule.warmup=0") == ""


def test_a_larger_n_warmup_steps_holds_and_a_smaller_one_is_said_not_to_count() -> None:
    assert said(n_warmup_steps=60) == ""
    assert said(n_warmup_steps=10) == (
        "no trial is pruned before step 51: until then its learning rate warms up; "
        "hydra.sweeper.pruner.n_warmup_steps=10 is earlier, and does not count"
    )


def test_no_number_is_said_that_does_not_hold_for_each_trial() -> None:
    line = "each trial may be pruned only once its learning rate has warmed up, by its own schedule"
    assert said(searched=("optimizer.lr", "schedule.warmup")) == line
    assert said("trainer.max_steps=null", "trainer.max_epochs=1") == line


def test_of_a_search_that_prunes_nothing_nothing_is_said() -> None:
    assert said(_target_="optuna.pruners.NopPruner") == ""


def test_the_search_says_it_once_as_it_begins(tmp_path: Path) -> None:
    runner = Runner()
    run(tmp_path / "s", runner=runner, n_trials=3)
    lines = [line for line in runner.said if "warms up" in line]
    assert lines == ["no trial is pruned before step 51: until then its learning rate warms up"]
    assert runner.said[0] == lines[0]


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
