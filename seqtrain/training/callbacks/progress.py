"""Progress on the screen: validations, and a bar in a terminal or notebook; elsewhere one line per epoch."""

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seqtrain.tasks.base import Metric
from seqtrain.training.accumulators import LOSS
from seqtrain.training.callbacks.record import Recorder, step_done
from seqtrain.training.learner import Learner

MIN_SECONDS_BETWEEN_LINES = 5.0  # between lines about epochs: short epochs would flood the output
MIN_SECONDS_BETWEEN_DRAWINGS = 1.0  # of the bar; each drawing costs milliseconds


class NotebookProgress(Progress):
    """Progress bar as one output of a notebook cell, redrawn during training. rich's own needs ipywidgets."""

    shown: Any = None  # IPython's handle of the output

    def start(self) -> None:
        """Show the bar below the cell."""
        from IPython.display import display  # available, because rich has detected a notebook

        self.shown = display(self, display_id=True)

    def refresh(self) -> None:
        """Redraw the bar."""
        if self.shown is not None:
            self.shown.update(self)

    def stop(self) -> None:
        """Draw the bar a last time and leave it there."""
        self.refresh()
        self.shown = None


class ProgressBar(Callback):
    """Show loss, bits per byte, tokens per second and time left."""

    def __init__(self, *, recorder: Recorder, steps_per_epoch: int, console: Console) -> None:
        self.recorder = recorder
        self.steps_per_epoch = steps_per_epoch
        self.console = console
        self.bar: Progress | None = None
        self.beside_loss: list[Metric] = []  # the first recorded one is shown next to the loss
        self._last_drawn = 0.0

    def setup(self, trainer: Trainer, pl_module: Learner, stage: str) -> None:  # type: ignore[override]
        task = pl_module.task
        compared = task.metric(task.comparison())
        self.beside_loss = [metric for metric in task.metrics if metric.better == "max"]
        if compared is not None and compared.name != LOSS:
            self.beside_loss.insert(0, compared)

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        # Only one of several processes writes, and only its bar is shown.
        in_notebook = self.console.is_jupyter and not self.console.quiet
        if not (in_notebook or self.console.is_terminal):
            return
        kind = NotebookProgress if in_notebook else Progress
        self.bar = kind(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            auto_refresh=False,  # without a thread: drawing happens between steps
        )
        self.task = self.bar.add_task("", total=pl_module.max_steps, completed=trainer.global_step)
        self.bar.start()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now, step = time.monotonic(), trainer.global_step
        if self.bar is not None:
            if now - self._last_drawn > MIN_SECONDS_BETWEEN_DRAWINGS:
                self._last_drawn = now
                self._draw(self.bar, step, pl_module)
            return
        epoch, rest = divmod(step, self.steps_per_epoch)
        if not rest and step_done(trainer, batch_idx) and now - self._last_drawn >= MIN_SECONDS_BETWEEN_LINES:
            self._last_drawn = now
            self._print(f"epoch {epoch} done at step {step}: {self._training_words(step)}")

    def _draw(self, bar: Progress, step: int, pl_module: Learner) -> None:
        bar.update(self.task, total=pl_module.max_steps, completed=step, description=self._words("train"))
        bar.refresh()

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        planned = str(pl_module.max_steps)
        if pl_module.max_steps != trainer.max_steps:  # a time limit decides, and max_steps is an estimate
            planned = f"about {planned}"
        step = trainer.global_step
        self._print(f"step {step} of {planned}: {self._training_words(step)}, {self._words('validation')}")

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Stop the bar and restore the terminal."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def on_train_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if self.bar is not None:
            self._draw(self.bar, trainer.global_step, pl_module)  # the last drawing may be a second old
        self.close()

    def on_exception(self, trainer: Trainer, pl_module: Learner, exception: BaseException) -> None:  # type: ignore[override]
        self.close()

    def _training_words(self, step: int) -> str:
        """Return the newest training record as text, with its step if it is an earlier one."""
        words, trained = self._words("train"), self.recorder.trained
        return words if trained in (0, step) else f"{words} at step {trained}"

    def _words(self, split: str) -> str:
        newest, loss = self.recorder.newest, f"{split}/{LOSS}"
        if loss not in newest:
            return f"{split} loss pending"
        words = f"{split} loss {newest[loss]:.4f}"
        for metric in self.beside_loss:
            name = f"{split}/{metric.name}"
            if name in newest:
                words += f" ({newest[name]:.3f} {metric.unit})"
                break
        if split == "train":
            words += f" {newest['tokens_per_second']:,.0f} tokens/s"
        return words
