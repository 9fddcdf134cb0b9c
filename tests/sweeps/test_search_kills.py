"""A search that is killed between two writes of its study proposes, and gives up, what it would have otherwise."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.runs.directory import Run
from seqtrain.sweeps import study as studies
from seqtrain.sweeps.folder import Sweep, Trial
from seqtrain.sweeps.study import Objective
from seqtrain.tasks.next_token import NextToken
from seqtrain.training.callbacks.checkpoints import Checkpoints
from seqtrain.training.callbacks.pruning import Pruning
from tests.conftest import Seqtrain
from tests.support.tiny import corpus
from tests.sweeps.test_search import SEARCH, TWO, Runner, asked, end, run

optuna = pytest.importorskip("optuna")

SAMPLERS: dict[str, dict[str, Any]] = {
    "TPE": {"n_startup_trials": 1},
    "Random": {},
    "NSGAII": {"population_size": 2},
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "drawn"), [("TPE", 0), *((name, 1) for name in SAMPLERS)])
def test_a_trial_that_was_half_asked_for_gets_the_parameters_that_it_would_have_got(
    tmp_path: Path, name: str, drawn: int
) -> None:
    def loss(trial: Trial) -> None:
        end(trial, loss=abs(float(trial.overrides[1].partition("=")[2]) - 0.01))

    fine = "model.dropout=interval(0,0.5)"  # that two draws of it are the same is no accident
    options: Any = {"sampler": {"_target_": f"optuna.samplers.{name}Sampler", **SAMPLERS[name]}}
    whole = run(tmp_path / "whole", fine, runner=Runner(loss), n_trials=4, **options)
    made = run(tmp_path / "s", fine, runner=Runner(loss), n_trials=3, **options)
    made.n_trials = 4
    made.space = dict(list(made.space.items())[:drawn])
    made._ask()  # and killed before the next parameter was drawn
    again = run(tmp_path / "s", fine, runner=Runner(loss), n_trials=4, **options)
    assert asked(again) == asked(whole)


HALVING = {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 10, "reduction_factor": 2}


def halving(path: Path) -> list[Any]:
    """Two trials of a study, of which the first has passed two rungs."""
    study = studies.begin(path, [Objective("best/loss", "min")], HALVING, None)
    study.pruner = studies.pruner(HALVING)
    better, worse = study.ask(), study.ask()
    for step in (10, 20):
        better.report(1.0, step)
        assert not studies.gives_up(better, step)
    return [better, worse]


def test_a_pruner_that_is_asked_once_more_after_a_kill_answers_the_same(tmp_path: Path) -> None:
    better, worse = halving(tmp_path)
    worse.report(2.0, 10)
    assert [studies.gives_up(worse, 10) for _ in range(3)] == [True] * 3
    assert not studies.gives_up(better, 20)
    attrs = better.storage.get_trial(better._trial_id).system_attrs
    assert {name for name in attrs if name.startswith("completed_rung")} == {"completed_rung_0", "completed_rung_1"}


# -- the decision in the checkpoint --------------------------------------------------------------------------------


def callbacks(run: Path, reason: str = "", **options: Any) -> tuple[Pruning, Checkpoints]:
    pruning = Pruning(run=Run(run), **options)
    pruning.reason = reason
    checkpoints = Checkpoints(run=Run(run), every=1, keep_last=1, keep_best=1, signals=Any, pruning=pruning)  # type: ignore[arg-type]
    return pruning, checkpoints


def saved(pruning: Pruning, checkpoints: Checkpoints, *, stops: bool) -> dict[str, Any]:
    """What a checkpoint at a validation holds of the two."""
    task = NextToken
    found: dict[str, Any] = {}

    def save(trainer: Any) -> None:
        found.update({each.state_key: each.state_dict() for each in (pruning, checkpoints)})

    checkpoints._save = save  # type: ignore[method-assign]
    trainer: Any = SimpleNamespace(
        global_step=20, should_stop=stops, state=SimpleNamespace(fn="fit"), is_global_zero=False
    )
    checkpoints.on_validation_end(trainer, SimpleNamespace(metrics={"loss": 1.0}, task=task))  # type: ignore[arg-type]
    return {"callbacks": found}


def resumed(pruning: Pruning, checkpoints: Checkpoints, checkpoint: dict[str, Any]) -> tuple[bool, str]:
    """Whether a run that is resumed from the checkpoint ends at once, and why."""
    trainer: Any = SimpleNamespace(should_stop=False, is_global_zero=False)
    for callback in (pruning, checkpoints):
        callback.on_load_checkpoint(trainer, None, checkpoint)  # type: ignore[arg-type]
    return trainer.should_stop, pruning.reason


def test_a_run_that_is_resumed_ends_as_its_checkpoint_says_unless_a_person_trains_on_what_was_pruned(
    tmp_path: Path,
) -> None:
    for reason, stops, ends, ends_for_a_person in (
        ("behind", True, (True, "behind"), (False, "")),
        ("", True, (True, ""), (True, "")),  # by early stopping
        ("", False, (False, ""), (False, "")),
    ):
        checkpoint = saved(*callbacks(tmp_path, reason), stops=stops)
        assert resumed(*callbacks(tmp_path), checkpoint) == ends
        assert resumed(*callbacks(tmp_path, after_pruning=True), checkpoint) == ends_for_a_person


@pytest.mark.long
def test_a_trial_that_was_pruned_and_killed_before_it_could_say_so_ends_as_pruned_and_a_person_may_train_it_on(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    answer = seqtrain(*SEARCH, *TWO, "hydra.sweep.dir=s", cwd=corpus(tmp_path))
    assert answer.rc == 0, answer.err
    pruned = next(trial for trial in Sweep.open(tmp_path / "s").trials() if trial.status == "pruned")
    run, reason = Run(pruned.path), pruned.reason
    steps = run.summary.steps
    summary = run.summary
    summary.remove("reason")
    summary.update(status="running")
    run.write_summary(summary)
    answer = seqtrain("resume", str(run.path), cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert (run.summary.status, run.summary.reason, run.summary.steps) == ("pruned", reason, steps)
    answer = seqtrain("resume", str(run.path), cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert (run.summary.status, run.summary.steps) == ("finished", 60)
