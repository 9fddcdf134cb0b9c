"""Saving of checkpoints, so that a resumed run ends bit for bit like an uninterrupted one, and choice of those kept."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.plugins.io import CheckpointIO

from seqtrain.errors import NonFinite
from seqtrain.runs import checkpoint as checkpoint_files
from seqtrain.runs.checkpoint import BEST, best_name, keep_newest, remove_older, step_name
from seqtrain.runs.directory import Run
from seqtrain.training.accumulators import LOSS
from seqtrain.training.callbacks.record import step_done
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.learner import Learner

if TYPE_CHECKING:
    from seqtrain.training.callbacks.pruning import Pruning


AUTO_STEPS = 200
REST = 50  # `auto` saves again after this many times the duration of a save


class Checkpoints(Callback):
    """Save every `every` steps, after each validation and before leaving on a signal; keep the last and the best.

    With `every="auto"` the interval is 200 steps, or longer if saving would take more than a fiftieth of the time.

    Lightning resumes exactly only after an optimiser step with no validation pending, or after a validation. Every
    process saves, because each has a part of the state. Only the first process names the files.
    """

    def __init__(
        self,
        *,
        run: Run,
        every: int | Literal["auto"],
        keep_last: int,
        keep_best: int,
        signals: Signals,
        pruning: Pruning | None = None,
    ) -> None:
        """Store the options. `pruning`: may end the training early; it precedes this callback in the trainer."""
        self.run = run
        self.every = every
        self.keep_last = keep_last
        self.keep_best = keep_best
        self.signals = signals
        self.pruning = pruning
        self.ranked: list[dict[str, Any]] = []  # step and metrics of the best validations, best first
        self.stopped = False  # True after early stopping, which Lightning does not restore
        self.rest_until = 0.0  # seconds of this process's clock

    @property
    def best(self) -> dict[str, Any]:
        """Step and metrics of the best validation, by the task's monitored metric; empty before the first."""
        return next(iter(self.ranked), {})

    def state_dict(self) -> dict[str, Any]:
        return {"ranked": self.ranked, "stopped": self.stopped}

    @property
    def _pruned(self) -> bool:
        return self.pruning is not None and bool(self.pruning.reason)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.ranked, self.stopped = state_dict["ranked"], state_dict["stopped"]

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Learner, checkpoint: dict[str, Any]) -> None:  # type: ignore[override]
        self.load_state_dict(checkpoint["callbacks"][self.state_key])
        trainer.should_stop = self.stopped or self._pruned
        self._name_best(trainer)  # the process may have been killed between two names
        if trainer.is_global_zero:  # or killed before it removed old checkpoints
            remove_older(self.run.checkpoints, self.keep_last, step=checkpoint["global_step"])

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.signals.defer()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not step_done(trainer, batch_idx):
            return
        self.signals.agree(trainer.global_step)
        step = trainer.global_step
        loop = trainer.fit_loop.epoch_loop
        validation_pending = loop._should_check_val_fx(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]
        if not validation_pending and (step == trainer.max_steps or self.signals.agreed or self._due(trainer)):
            self._save(trainer)
        self.signals.leave_together()

    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.signals.leave()

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        task = pl_module.task
        self._rank({"step": trainer.global_step, **pl_module.metrics}, task.monitor, task.monitor_better())
        if trainer.state.fn == "fit":
            self.stopped = trainer.should_stop and not self._pruned
            self._save(trainer)
        self._name_best(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.signals.at_once()

    def _due(self, trainer: Trainer) -> bool:
        if isinstance(self.every, int):
            return trainer.global_step % self.every == 0
        resting = time.monotonic() < self.rest_until
        # Clocks differ, so the processes agree: all save, or none.
        return trainer.global_step % AUTO_STEPS == 0 and not trainer.strategy.reduce_boolean_decision(resting)

    def _rank(self, validation: dict[str, Any], name: str, mode: str) -> None:
        """Insert a validation into the ranking: ties go to the earlier one; a step that is measured twice is kept once.

        Validations with equal values of the monitored metric are ranked by their loss. NaN is last.
        """

        def badness(entry: dict[str, Any]) -> tuple[float, float]:
            value = entry[name] if mode == "min" else -entry[name]
            return _infinite_for_nan(value), _infinite_for_nan(entry[LOSS])

        known_steps = {entry["step"] for entry in self.ranked}
        if validation["step"] not in known_steps:
            self.ranked = sorted([*self.ranked, validation], key=badness)[: self.keep_best]

    def _save(self, trainer: Trainer) -> None:
        step, begin = trainer.global_step, time.monotonic()
        # An overflow shows in the loss one step later, so a checkpoint before that would count as the last good one.
        finite = all(bool(torch.isfinite(weight).all()) for weight in trainer.lightning_module.parameters())
        if not trainer.strategy.reduce_boolean_decision(finite):
            raise NonFinite(f"a weight is not finite at step {step}")
        self.run.sync()
        trainer.save_checkpoint(self.run.checkpoints / step_name(step))
        if trainer.is_global_zero:
            keep_newest(self.run.checkpoints, self.keep_last, step=step)
        end = time.monotonic()
        self.rest_until = end + REST * (end - begin)

    def _name_best(self, trainer: Trainer) -> None:
        """Give the best checkpoints their second names without writing them again; the old names stay until then.

        If the process is killed between two steps of this, the next call completes it.
        """
        if not trainer.is_global_zero or not self.ranked:
            return
        folder = self.run.checkpoints
        wanted = {best_name(entry["step"]): entry["step"] for entry in self.ranked if self.keep_best > 1}
        for name, step in [*wanted.items(), (BEST, self.best["step"])]:
            # Older steps are removed over time: then only a second name refers to the weights.
            for source in (folder / step_name(step), folder / best_name(step)):
                if source.exists() and source.name != name:
                    _link(source, folder / name)
                    break
        for path in folder.glob("best-*.ckpt"):
            if path.name not in wanted:
                path.unlink()


def _infinite_for_nan(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, replacing any file of that name. Copy it if the file system has no hard links."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samefile(source, target):
            return
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    os.replace(temporary, target)  # so that the run always has a best checkpoint


class Plateau(Callback):
    """Step a learning-rate schedule that waits for the validation loss to stop falling."""

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if pl_module.plateau is not None and trainer.state.fn == "fit":
            with torch.no_grad():
                pl_module.plateau.step(pl_module.metrics[LOSS])


class AtomicCheckpointIO(CheckpointIO):
    """Atomic checkpoint files. Lightning's own move from the temporary folder loses the old file if killed."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write `path` atomically. Raises OSError if the disk is full; the old file is kept."""
        checkpoint_files.save(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the checkpoint on the CPU with weights_only, ignoring the arguments. Raises UserError if damaged."""
        return checkpoint_files.load(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete the file if it exists."""
        Path(path).unlink(missing_ok=True)
