"""Pruning: stop a trial of a search when its study prunes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytorch_lightning import Callback, Trainer

from seqtrain.distributed import ranks
from seqtrain.runs.directory import Run
from seqtrain.sweeps import study
from seqtrain.terminal import tell
from seqtrain.training.learner import Learner

if TYPE_CHECKING:
    import optuna


class Pruning(Callback):
    """Report each validation to the study, and end the training if the study prunes it.

    Every process of a run has this callback, and all follow the first one. If the study does not respond, training
    continues. It precedes the callback that saves checkpoints, so that a decision is saved with the state on which it
    was made. A run that was killed before it recorded its end is therefore not trained further.
    """

    def __init__(self, *, run: Run, warmup: int = 0, after_pruning: bool = False) -> None:
        """Store the options; no study is opened yet.

        Args:
            run: The trial.
            warmup: Number of steps with a rising learning rate.
            after_pruning: True if the run was pruned and the user continues it.
        """
        self.run = run
        # Before its first step at the full rate, a trial's results say nothing about that rate.
        self.first_step = warmup + 1 if warmup else 0
        self.after_pruning = after_pruning
        self.reason = ""  # why training ended; empty while it continues
        self._trial: optuna.trial.Trial | None = None
        self._silent = False  # True after logging that the study does not respond

    def state_dict(self) -> dict[str, Any]:
        return {"reason": self.reason}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Learner, checkpoint: dict[str, Any]) -> None:  # type: ignore[override]
        if not self.after_pruning:
            self.reason = checkpoint["callbacks"].get(self.state_key, self.state_dict())["reason"]

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if trainer.state.fn != "fit":
            return
        last = trainer.global_step >= trainer.max_steps  # nothing is saved after it
        reason = self._judged_or_silent(trainer.global_step, pl_module.metrics, last) if self.run.writes else ""
        self.reason = ranks.broadcast(reason)
        trainer.should_stop |= bool(self.reason)

    def _judged_or_silent(self, step: int, metrics: dict[str, float], last: bool) -> str:
        """Return the reason to stop, or an empty string (also if the study does not respond)."""
        try:
            return self._judged(step, metrics, last)
        except Exception as error:  # a fault of the storage must not stop training
            if not self._silent:
                tell(f"the study of the search does not respond, so nothing is pruned: {' '.join(str(error).split())}")
            self._silent = True
            return ""

    def _judged(self, step: int, metrics: dict[str, float], last: bool) -> str:
        """Report a validation; return the reason to stop, or an empty string."""
        self._trial = self._trial or study.running_trial(self.run.path)
        if self._trial is None:
            return ""
        metric = study.reported(self._trial.study)
        if metric is None:
            return ""
        reported = self._trial.storage.get_trial(self._trial._trial_id).intermediate_values
        if step not in reported:  # otherwise an earlier attempt has reported it
            self._trial.report(metrics[metric], step)
        # A resumed run was already judged up to its last step; for an older step the study would use newer values.
        if last or step < max(reported, default=0) or not study.gives_up(self._trial, step):
            return ""
        # After the report, so that successive halving records each rung at its own step.
        if step < self.first_step:
            return ""
        return f"validation {metric} {metrics[metric]:.4g} at step {step} is worse than in other trials"
