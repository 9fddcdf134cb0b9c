"""Time limit of a training: `trainer.max_seconds`, beside its limit of steps."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Callback, Trainer

from seqtrain.distributed.ranks import all_max, rank_info
from seqtrain.training.callbacks.record import Recorder, step_done
from seqtrain.training.learner import Learner

MICRO = 1e6  # processes exchange integers


class Deadline(Callback):
    """End training at the first step after `seconds` of training, over all attempts, without validations.

    After each step the schedule gets the number of steps that the time allows, so that the learning rate has fallen
    completely when time is up. It precedes the callback that saves checkpoints, which asks if a step is the last one.
    """

    def __init__(self, *, recorder: Recorder, seconds: float) -> None:
        self.recorder = recorder
        self.seconds = seconds
        self.met = False

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.limit = trainer.max_steps
        self._look(trainer, pl_module)

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if step_done(trainer, batch_idx):
            self._look(trainer, pl_module)

    def _look(self, trainer: Trainer, learner: Learner) -> None:
        """Read the clock of the first process, which is the recorded one, so that all processes decide alike."""
        microseconds = round(self.recorder.elapsed() * MICRO) if rank_info().first else 0
        step, spent = trainer.global_step, all_max(microseconds) / MICRO
        if not step:
            return  # no pace is known yet
        self.met = spent >= self.seconds
        if self.met:
            self.recorder.stop()  # what is saved and measured from here on is not training
            learner.max_steps = trainer.fit_loop.epoch_loop.max_steps = step
        else:
            learner.max_steps = min(self.limit, max(step + 1, round(step * self.seconds / spent)))
