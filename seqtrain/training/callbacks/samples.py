"""Samples: what the model writes, or makes of some examples, at each validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.files.atomic import write_text
from seqtrain.models.decoding import continue_tokens
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import ExampleTask
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import Sink

if TYPE_CHECKING:
    from seqtrain.training.data import Data


class Samples(Callback):
    """Continues `prompt` by `length` tokens, or shows `examples` of validation, as the task has it.

    To samples/step-*.txt and to every sink that takes text.
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
        self.prompt = prompt
        self.length = length
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.examples = examples
        self.run = run
        self.data = data
        self.newest = ""

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.newest = self._shown(pl_module) if isinstance(pl_module.task, ExampleTask) else self._written(pl_module)
        step = trainer.global_step
        write_text(self.run.samples / f"step-{step:08d}.txt", self.newest)
        for logger in trainer.loggers:
            if isinstance(logger, Sink):
                logger.log_text("samples", self.newest, step)

    def _written(self, learner: Learner) -> str:
        tokenizer = self.data.tokenizer
        tokens = continue_tokens(
            learner.model,
            lambda hidden: learner.task.scores(learner.model, hidden),  # type: ignore[operator]
            [[tokenizer.start, *tokenizer.encode(self.prompt).tolist()]],
            num_tokens=self.length,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
        )
        return self.prompt + tokenizer.decode([int(token) for token in tokens])

    def _shown(self, learner: Learner) -> str:
        """The same examples each time, spread over the split."""
        assert isinstance(learner.task, ExampleTask)
        examples = self.data.examples("validation")
        count = len(examples.lengths)
        index = np.arange(min(self.examples, count)) * count // min(self.examples, count)
        batch = examples.collate(index, 0, examples.totals(index, 0)).to(learner.device)
        with torch.no_grad(), torch.autocast(learner.device.type, enabled=False):
            return "\n".join(learner.task.show(learner.model, batch, self.data.vocabularies))
