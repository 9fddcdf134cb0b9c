"""What a person sees while training: a bar on a terminal, otherwise one line a validation and one an epoch."""

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seqtrain.tasks.base import Metric
from seqtrain.training.callbacks.record import Recorder
from seqtrain.training.learner import Learner

QUIET = 5.0  # seconds between lines about epochs, where no bar is drawn
REFRESH = 1.0  # seconds; drawing costs milliseconds


class ProgressBar(Callback):
    """Loss, bits per byte, tokens per second and time left."""

    def __init__(self, *, recorder: Recorder, steps_per_epoch: int, console: Console) -> None:
        self.recorder = recorder
        self.steps_per_epoch = steps_per_epoch
        self.console = console
        self.bar: Progress | None = None
        self.beside: list[Metric] = []  # what may stand beside the loss: the first that is known
        self._shown = 0.0

    def setup(self, trainer: Trainer, pl_module: Learner, stage: str) -> None:  # type: ignore[override]
        task = pl_module.task
        first = [metric for metric in task.metrics if metric.name == task.comparison() and metric.name != "loss"]
        self.beside = first + [metric for metric in task.metrics if metric.better == "max"]

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if not self.console.is_terminal:
            return
        self.bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            auto_refresh=False,  # no thread of its own: drawing happens between steps
        )
        self.task = self.bar.add_task("", total=pl_module.max_steps, completed=trainer.global_step)
        self.bar.start()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.monotonic()
        if self.bar is not None:
            if now - self._shown > REFRESH:
                self._shown = now
                words = self._words("train")
                self.bar.update(self.task, total=pl_module.max_steps, completed=trainer.global_step, description=words)
                self.bar.refresh()
        elif trainer.global_step % self.steps_per_epoch == 0 and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            epoch = trainer.global_step // self.steps_per_epoch
            if now - self._shown < QUIET:
                return  # short epochs would bury everything else
            self._shown = now
            self._print(f"epoch {epoch} done at step {trainer.global_step}: {self._words('train')}")

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        planned = f"{'' if pl_module.max_steps == trainer.max_steps else 'about '}{pl_module.max_steps}"
        self._print(f"step {trainer.global_step} of {planned}: {self._words('train')}, {self._words('validation')}")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def on_train_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.close()

    def on_exception(self, trainer: Trainer, pl_module: Learner, exception: BaseException) -> None:  # type: ignore[override]
        self.close()

    def _words(self, split: str) -> str:
        newest = self.recorder.newest
        if f"{split}/loss" not in newest:
            return f"{split} ..."
        words = f"{split} loss {newest[f'{split}/loss']:.4f}"
        beside = next((metric for metric in self.beside if f"{split}/{metric.name}" in newest), None)
        if beside is not None:
            words += f" ({newest[f'{split}/{beside.name}']:.3f} {beside.unit})"
        if split == "train":
            words += f" {newest['tokens_per_second']:,.0f} tokens/s"
        return words
