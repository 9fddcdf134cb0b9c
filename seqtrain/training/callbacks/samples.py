"""Samples at each validation: generated text, or the model's output for some examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.errors import NonFinite
from seqtrain.runs.directory import Run
from seqtrain.runs.shown import write_samples
from seqtrain.tasks.base import Sample, SampleOptions
from seqtrain.terminal import tell
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import RunLogger
from seqtrain.training.loggers.shown import log_fans, log_samples

if TYPE_CHECKING:
    from seqtrain.training.splits import Data


class Samples(Callback):
    """Continue `prompt` by `length` tokens, or show `examples` of validation, as the task does.

    Samples are written to samples/step-*.txt, by columns to samples/step-*.json, and to every logger that takes text,
    tables or pictures.
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
        except NonFinite as error:  # the loss decides whether the training continues
            tell(f"step {trainer.global_step}: no samples: {error}")
            return
        self.newest = "\n".join(sample.text for sample in found)
        step = trainer.global_step
        columns, fans = [sample.columns for sample in found], [sample.fan for sample in found]
        samples = write_samples(self.run, step, self.newest, columns, fans)
        run_loggers = [logger for logger in trainer.loggers if isinstance(logger, RunLogger)]
        for run_logger in run_loggers:
            log_samples(run_logger, samples, step)
        log_fans(run_loggers, samples, step)

    def _sample(self, learner: Learner) -> Sequence[Sample]:
        batch = self.data.sample("validation", self.examples)
        if batch is not None:
            batch = batch.to(learner.device)
        # In the precision of the weights, as evaluation reads.
        with torch.no_grad(), torch.autocast(learner.device.type, enabled=False):
            return learner.task.samples(learner.model, batch, self.data.preprocessor, self.options)
