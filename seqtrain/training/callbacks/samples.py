"""Samples: what the model writes, or makes of some examples, at each validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.files.atomic import write_text
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import SampleOptions
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import RunLogger

if TYPE_CHECKING:
    from seqtrain.training.splits import Data


class Samples(Callback):
    """Continues `prompt` by `length` tokens, or shows `examples` of validation, as the task has it.

    To samples/step-*.txt and to every logger that takes text.
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
        self.newest = self._sample(pl_module)
        step = trainer.global_step
        write_text(self.run.samples / f"step-{step:08d}.txt", self.newest)
        for logger in trainer.loggers:
            if isinstance(logger, RunLogger):
                logger.log_text("samples", self.newest, step)

    def _sample(self, learner: Learner) -> str:
        batch = self.data.sample("validation", self.examples)
        if batch is not None:
            batch = batch.to(learner.device)
        # In the precision of the weights, as evaluation reads.
        with torch.no_grad(), torch.autocast(learner.device.type, enabled=False):
            return "\n".join(learner.task.show(learner.model, batch, self.data.preprocessor, self.options))
