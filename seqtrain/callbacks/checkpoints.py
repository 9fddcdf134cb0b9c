"""When to save, so that a resumed run ends bit for bit where the uninterrupted one does."""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.callbacks.record import step_done
from seqtrain.callbacks.signals import Signals
from seqtrain.checkpoint import BEST, keep_newest, step_name
from seqtrain.faults import NonFinite
from seqtrain.learner import Learner
from seqtrain.runs import Run

KEPT = 2


class Checkpoints(Callback):
    """Saves every `every` steps, after each validation and when asked to leave; links the best one.

    Lightning resumes exactly only after an optimiser step with no validation pending, or when one has ended.
    """

    def __init__(self, *, run: Run, every: int, signals: Signals) -> None:
        self.run = run
        self.every = every
        self.signals = signals
        self.best: dict[str, Any] = {}  # step and metrics of the best validation, by the task's own measure
        self.stopped = False  # by early stopping, which Lightning would forget

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "stopped": self.stopped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.stopped = state_dict["best"], state_dict["stopped"]

    def on_fit_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        trainer.should_stop = self.stopped
        if self.best and (self.run.checkpoints / step_name(self.best["step"])).exists():
            self._link_best(self.best["step"])  # a process killed between the two names left the second one behind

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.signals.defer()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not step_done(trainer, batch_idx):
            return
        step = trainer.global_step
        loop = trainer.fit_loop.epoch_loop
        validation_pending = loop._should_check_val_fx(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]
        due = step % self.every == 0 or step == trainer.max_steps or self.signals.received
        if due and not validation_pending:
            self._save(trainer)
        self.signals.leave()

    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.signals.leave()

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        step, metrics = trainer.global_step, pl_module.metrics
        name, mode = pl_module.task.monitor
        sign = 1 if mode == "min" else -1
        # Where many weights are as right, the surer ones.
        better = not self.best or (sign * metrics[name], metrics["loss"]) < (sign * self.best[name], self.best["loss"])
        if better:
            self.best = {"step": step, **metrics}
        if trainer.state.fn == "fit":
            self.stopped = trainer.should_stop
            self._save(trainer)
        if better:
            self._link_best(step)

    def on_train_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.signals.at_once()

    def _save(self, trainer: Trainer) -> None:
        step = trainer.global_step
        # An overflow shows in the loss one step later: what is saved before that would be called the last good one.
        if not all(torch.isfinite(weight).all() for weight in trainer.lightning_module.parameters()):
            raise NonFinite(f"a weight is no number any more at step {step}")
        self.run.sync()
        trainer.save_checkpoint(self.run.checkpoints / step_name(step))
        keep_newest(self.run.checkpoints, KEPT, step=step)

    def _link_best(self, step: int) -> None:
        """A second name for the step's file: nothing is written twice, and the old best stands until then."""
        folder = self.run.checkpoints
        temporary = folder / f".{BEST}.tmp"
        temporary.unlink(missing_ok=True)
        try:
            os.link(folder / step_name(step), temporary)
        except OSError:  # a file system without links
            shutil.copyfile(folder / step_name(step), temporary)
        os.replace(temporary, folder / BEST)


class Plateau(Callback):
    """Steps a learning rate that waits for the validation loss to stop falling."""

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if pl_module.plateau is not None and trainer.state.fn == "fit":
            with torch.no_grad():
                pl_module.plateau.step(pl_module.metrics["loss"])
