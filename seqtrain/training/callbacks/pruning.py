"""Stopping a trial of a search that its study gives up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytorch_lightning import Callback, Trainer

from seqtrain.distributed import ranks
from seqtrain.runs.directory import Run
from seqtrain.sweeps import study
from seqtrain.sweeps.folder import Sweep, member_of
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import say

if TYPE_CHECKING:
    import optuna


def is_searched(run: Path) -> bool:
    """Whether the run is a trial of a search."""
    return member_of(run) is not None and Sweep.open(run.absolute().parent).asked.kind == "optuna"


class Pruning(Callback):
    """Reports each validation to the study, and ends the training where the study says so.

    Every process of a run has one, and all do what the first is told. A study that cannot be asked stops nothing.
    Stands before what saves checkpoints: a decision is saved with the state that it was made on, so that a run that
    was killed before it could say how it ended is not trained on.
    """

    def __init__(self, *, run: Run, goes_on: bool = False) -> None:
        """`goes_on`: the run has ended as pruned, and a person trains it on all the same."""
        self.run = run
        self.goes_on = goes_on
        self.reason = ""  # why the training ended; empty as long as it goes on
        self._trial: optuna.trial.Trial | None = None
        self._silent = False  # once a person has been told that the study does not answer

    def state_dict(self) -> dict[str, Any]:
        return {"reason": self.reason}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Learner, checkpoint: dict[str, Any]) -> None:  # type: ignore[override]
        if not self.goes_on:
            self.reason = checkpoint["callbacks"].get(self.state_key, self.state_dict())["reason"]

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if trainer.state.fn != "fit":
            return
        last = trainer.global_step >= trainer.max_steps  # nothing is saved any more
        self.reason = ranks.broadcast(
            self._asked(trainer.global_step, pl_module.metrics, last) if self.run.writes else ""
        )
        trainer.should_stop |= bool(self.reason)

    def _asked(self, step: int, metrics: dict[str, float], last: bool) -> str:
        """Why to stop, or nothing."""
        try:
            return self._judged(step, metrics, last)
        except Exception as error:  # whatever a storage does, it must not stop the training
            if not self._silent:
                say(f"the study of the search does not answer, so nothing is pruned: {' '.join(str(error).split())}")
            self._silent = True
            return ""

    def _judged(self, step: int, metrics: dict[str, float], last: bool) -> str:
        self._trial = self._trial or study.running_trial(self.run.path)
        if self._trial is None:
            return ""
        metric = study.reported(self._trial.study)
        if metric is None:
            return ""
        known = self._trial.storage.get_trial(self._trial._trial_id).intermediate_values
        if step not in known:  # else an earlier attempt has told
            self._trial.report(metrics[metric], step)
        if last or step < max(known, default=0) or not study.gives_up(self._trial, step):
            return ""
        return f"validation {metric} {metrics[metric]:.4g} at step {step} is behind that of other trials"
