"""A trial that its search gives up: when it ends, what it says, and who asks."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.runs.directory import Run
from seqtrain.sweeps import study as studies
from seqtrain.sweeps.folder import Asked, Sweep, Trial, is_searched
from seqtrain.training.callbacks.pruning import Pruning
from tests.sweeps.test_search import Killed, Runner, end, run

optuna = pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def five_ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of which five trials ended, with losses 1.0, 1.1 and so on at steps 20 and 40, and the sixth runs."""

    def ending(trial: Trial) -> None:
        if trial.number == 5:
            raise Killed
        callback = Pruning(run=Run(trial.path))
        for step in (20, 40):
            callback._judged(step, {"loss": 1 + trial.number / 10}, last=False)
        end(trial, loss=1 + trial.number / 10)

    path = tmp_path_factory.mktemp("search") / "s"
    run(path, runner=Runner(ending), n_trials=6)
    return path


@pytest.fixture
def pruning(five_ended: Path, tmp_path: Path) -> Pruning:
    """The callback of its sixth trial."""
    shutil.copytree(five_ended, tmp_path / "moved")
    return Pruning(run=Run(tmp_path / "moved" / "005"))


def validated(
    pruning: Pruning, step: int, loss: float, *, steps: int = 60, fn: str = "fit", stops: bool = False
) -> bool:
    """Whether a validation ends the training; `stops`: whether something else has ended it already."""
    state = SimpleNamespace(fn=fn)
    trainer: Any = SimpleNamespace(state=state, global_step=step, max_steps=steps, should_stop=stops)
    learner: Any = SimpleNamespace(metrics={"loss": loss})
    pruning.on_validation_end(trainer, learner)
    return trainer.should_stop


def told(pruning: Pruning) -> dict[int, float]:
    """What the study knows of the trial's validations."""
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{pruning.run.path.parent}/study.db")
    return study.get_trials()[5].intermediate_values


@pytest.mark.long
def test_a_trial_behind_the_median_stops_and_one_before_it_does_not(pruning: Pruning) -> None:
    assert not validated(pruning, 20, 1.19)
    assert not validated(pruning, 40, 1.21)  # its best counts
    assert not pruning.reason


def test_a_trial_that_is_stopped_says_why_and_the_last_step_is_not_worth_stopping_before(pruning: Pruning) -> None:
    assert not validated(pruning, 20, 9.0, steps=20)
    assert validated(pruning, 40, 9.0)
    assert pruning.reason == "validation loss 9 at step 40 is worse than in other trials"


def test_a_validation_that_is_repeated_after_a_resume_is_reported_once(pruning: Pruning) -> None:
    with warnings.catch_warnings(record=True) as said:  # by the study, of a second report
        for _ in range(2):
            assert not validated(Pruning(run=pruning.run), 20, 1.19)
    assert not said
    assert told(pruning) == {20: 1.19}


def test_a_study_that_does_not_answer_stops_nothing_and_that_is_said_once(
    pruning: Pruning, capsys: pytest.CaptureFixture[str]
) -> None:
    (pruning.run.path.parent / studies.STUDY).unlink()
    assert not validated(pruning, 20, 9.0)
    assert not validated(pruning, 40, 9.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "does not respond, so nothing is pruned" in lines[0]


def test_a_trial_that_has_gone_back_is_judged_where_it_left_and_not_before(
    pruning: Pruning, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not validated(pruning, 20, 1.0)
    assert not validated(pruning, 40, 1.0)
    monkeypatch.setattr(studies, "gives_up", lambda trial, step: True)
    again = Pruning(run=pruning.run)
    assert not validated(again, 20, 1.0)
    assert validated(again, 40, 1.0)


def test_what_ends_for_another_reason_ends_whatever_the_study_says(pruning: Pruning) -> None:
    assert validated(pruning, 20, 1.0, stops=True)
    assert not pruning.reason


def test_the_study_is_told_of_training_by_the_one_process_that_writes_the_run(pruning: Pruning) -> None:
    assert not validated(pruning, 20, 9.0, fn="validate")
    other = Pruning(run=Run(pruning.run.path, writes=False))
    assert not validated(other, 20, 9.0)
    assert told(pruning) == {}


def test_only_a_trial_of_a_search_has_a_study_to_ask(tmp_path: Path) -> None:
    for kind in ("grid", "optuna"):
        sweep = Sweep.create(tmp_path / kind, Asked((), kind=kind))
        assert is_searched(sweep.plan(0, ["seed=1"], "seed=1").path) == (kind == "optuna")
    assert not is_searched(tmp_path / "run")


# -- from which step on a search may stop a trial ------------------------------------------------------------------


def hopeless(path: Path, warmup: int, **pruner: Any) -> dict[int, bool]:
    """At which of its validations a trial is stopped that is far behind five others at each of them."""
    stopped = {}

    def ending(trial: Trial) -> None:
        callback = Pruning(run=Run(trial.path), warmup=warmup)
        if trial.number == 5:
            stopped.update({step: validated(callback, step, 9.0, steps=80) for step in (20, 40, 60)})
            raise Killed
        for step in (20, 40, 60):
            callback._judged(step, {"loss": 1.0}, last=False)
        end(trial)

    run(path, runner=Runner(ending), n_trials=6, **({"pruner": pruner} if pruner else {}))
    return stopped


@pytest.mark.long
def test_a_trial_that_is_far_behind_is_not_pruned_while_its_rate_warms_up_and_is_at_once_afterwards(
    tmp_path: Path,
) -> None:
    assert hopeless(tmp_path / "none", 0) == {20: True, 40: True, 60: True}
    assert hopeless(tmp_path / "edge", 40) == {20: False, 40: False, 60: True}


def test_an_explicit_later_start_of_the_pruner_holds(tmp_path: Path) -> None:
    later = {"n_startup_trials": 5, "n_warmup_steps": 50, "interval_steps": 1, "n_min_trials": 1}
    median = {"_target_": "optuna.pruners.MedianPruner", **later}
    assert hopeless(tmp_path / "s", 20, **median) == {20: False, 40: False, 60: True}


@pytest.mark.long
def test_successive_halving_notes_rungs_of_the_warmup_at_their_own_steps(tmp_path: Path) -> None:
    halving = {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 20, "reduction_factor": 2}
    # Rungs at 20 and 40: that of 20 is let pass, that of 40 is judged as ever, and at 60 there is none.
    assert hopeless(tmp_path / "s", 30, **halving) == {20: False, 40: True, 60: False}
