"""Samples at each validation: generated text, or the model's output for some examples."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.errors import NonFinite
from seqtrain.runs import shown
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Sample, SampleOptions
from seqtrain.terminal import tell
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import RunLogger

if TYPE_CHECKING:
    from seqtrain.training.splits import Data


class Samples(Callback):
    """Continue `prompt` by `length` tokens, or show `examples` of validation, as the task does.

    Samples are written to samples/step-*.txt, as columns to samples/step-*.json, and to every logger that supports
    text, tables or images.
    """

    def __init__(
        self,
        *,
        prompt: str,
        length: int,
        temperature: float,
        top_k: int | None,
        top_p: float | None,
        examples: int,
        run: Run,
        data: Data,
    ) -> None:
        self.options = SampleOptions(prompt, length, temperature, top_k, top_p)
        self.examples = examples
        self.run = run
        self.data = data
        self.newest = ""

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        try:
            found = self._sample(pl_module)
        except NonFinite as error:  # the loss decides whether training continues
            tell(f"step {trainer.global_step}: no samples: {error}")
            return
        self.newest = "\n".join(sample.text for sample in found)
        step = trainer.global_step
        columns, fans = [sample.columns for sample in found], [sample.fan for sample in found]
        samples = shown.write_samples(self.run, step, self.newest, columns, fans)
        run_loggers = [logger for logger in trainer.loggers if isinstance(logger, RunLogger)]
        log_samples(run_loggers, samples, step)

    def _sample(self, learner: Learner) -> Sequence[Sample]:
        batch = self.data.sample("validation", self.examples)
        if batch is not None:
            batch = batch.to(learner.device)
        # In the precision of the weights, as in evaluation.
        with torch.no_grad(), torch.autocast(learner.device.type, enabled=False):
            return learner.task.samples(learner.model, batch, self.data.preprocessor, self.options)


def log_samples(run_loggers: Sequence[RunLogger], samples: shown.Samples, step: int) -> None:
    """Log samples as text, by columns, and a plot of each forecast: during training and from `seqtrain sync`.

    A plot is drawn once for all loggers, if any of them shows it. A failure to draw is logged in one line.
    """
    for run_logger in run_loggers:
        run_logger.log_text("samples", samples.text, step)
        if samples.table is not None:
            run_logger.log_table("samples_table", samples.table, step)
    if not samples.fans:
        return
    shown_by = [each for each in run_loggers if each.shows_images and not each.broken]
    if not shown_by:
        return
    from seqtrain.inference.forecast_plot import draw_small_fan

    with tempfile.TemporaryDirectory() as folder:
        for place, fan in enumerate(samples.fans, 1):
            if fan is None:
                continue
            picture = Path(folder) / f"sample_{place}.png"
            try:
                draw_small_fan(fan, picture)
            except Exception as error:  # any fault of matplotlib or the numbers
                tell(f"the plot of sample {place} could not be drawn: {error}")
                continue
            for run_logger in shown_by:
                run_logger.log_image(f"sample_{place}", picture, step)
