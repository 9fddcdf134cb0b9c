"""When a training saves, how many checkpoints stay, and that one that has ended is not gone on with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.stream import EvalLoader
from seqtrain.errors import NonFinite
from seqtrain.runs.checkpoint import load, newest_valid, step_name, step_of
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.checkpoints import Checkpoints
from seqtrain.training.callbacks.record import Recorder
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.learner import Learner
from seqtrain.training.optim.schedules import Cosine
from tests.support.model_cases import Case
from tests.training.test_learner import Text, make_learner, make_trainer

STEPS, LANES = 10, 16
CASE = Case("gru", (("dropout", 0.3),))


@dataclass
class Trained:
    """What a sitting has come to."""

    learner: Learner
    trainer: Trainer
    checkpoints: Checkpoints


def train(
    run: Run,
    *callbacks: Callback,
    accumulate: int = 1,
    keep_last: int = 99,
    checkpoint: Path | None = None,
    validate_every: int = 5,
) -> Trained:
    """Ten steps on sixteen lanes, recorded every 3, saved every 4, and validated; from a checkpoint on."""
    plan = Text().plan(LANES)
    learner = make_learner(CASE.make().train(), plan)
    learner.schedule, learner.max_steps = Cosine(warmup=2, final=0.1), STEPS
    saving = Checkpoints(run=run, every=4, keep_last=keep_last, keep_best=1, signals=Signals())
    recorder = Recorder(run=run, every=3, plan=plan)
    trainer = make_trainer(run.path, recorder, *callbacks, saving, accumulate=accumulate, validate_every=validate_every)
    loader = TrainLoader(
        Text().stream(), plan, accumulate=accumulate, first_step=0 if checkpoint is None else step_of(checkpoint)
    )
    validation = EvalLoader(Text(1).stream(), Text(1).plan(3), batch_size=None)
    with Signals():
        trainer.fit(learner, loader, validation, ckpt_path=checkpoint, weights_only=True)
    run.close()
    return Trained(learner, trainer, saving)


def steps(run: Run) -> list[int]:
    return sorted(step_of(path) for path in run.checkpoints.glob("step-*.ckpt"))


@pytest.mark.parametrize(
    ("accumulate", "validate_every", "expected"), [(1, 5, [4, 5, 8, 10]), (4, 5, [4, 5, 8, 10]), (1, 7, [4, 7, 8, 10])]
)
def test_a_training_saves_as_often_as_asked_after_each_validation_and_at_its_end(
    accumulate: int, validate_every: int, expected: list[int], tmp_path: Path
) -> None:
    run = Run.create(tmp_path / "run")
    found = train(run, accumulate=accumulate, validate_every=validate_every)
    assert found.trainer.global_step == STEPS
    assert steps(run) == expected
    for step in steps(run):
        saved = load(run.checkpoints / step_name(step))
        ranked = saved["callbacks"]["Checkpoints"]["ranked"]
        assert {one["step"] for one in ranked} <= {5, 7, 10}
        assert bool(ranked) == (step >= validate_every), "a validation is in the checkpoint of its step"


def test_no_more_checkpoints_stay_than_asked_beside_the_best(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    found = train(run, keep_last=2)
    assert steps(run) == [8, 10]
    assert load(run.checkpoints / "best.ckpt")["global_step"] == found.checkpoints.best["step"]


def test_a_training_that_was_stopped_early_does_not_go_on_when_it_is_resumed(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
            trainer.should_stop = True

    run = Run.create(tmp_path / "run")
    assert train(run, Stop()).trainer.global_step == 5
    again = Run.create(tmp_path / "again")
    assert train(again, checkpoint=run.checkpoints / step_name(5)).trainer.global_step == 5
    assert steps(again) == []


def test_a_weight_that_is_no_number_is_never_saved(tmp_path: Path) -> None:
    class Break(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *rest: Any) -> None:
            if trainer.global_step == 8:
                pl_module.task.register_parameter("spare", torch.nn.Parameter(torch.tensor([1.0, float("inf")])))

    run = Run.create(tmp_path / "run")
    with pytest.raises(NonFinite, match="a weight is not finite at step 8"):
        train(run, Break())
    assert newest_valid(run.checkpoints, pytest.fail) == run.checkpoints / step_name(5)
