"""A plot of attention maps at the end of training: the positions that one example attends to."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.errors import UserError
from seqtrain.inference.attention_maps import Seen, draw, labels, look, step_numbers
from seqtrain.runs.directory import Run
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import log_picture

if TYPE_CHECKING:
    from seqtrain.training.splits import Data

MAX_TOKENS = 30  # of the example, on each side


class AttentionMaps(Callback):
    """Draw plots/attention.png: attention over the beginning of the first validation example."""

    def __init__(self, *, run: Run, data: Data) -> None:
        self.run = run
        self.data = data

    def on_fit_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if not trainer.is_global_zero:
            return
        training = pl_module.training
        pl_module.eval()  # with dropout the maps would differ at each drawing
        log_picture(trainer, "attention", "the maps of attention", partial(self._draw, pl_module))
        pl_module.train(training)

    def _draw(self, learner: Learner) -> Path | None:
        try:
            maps = self._maps(learner)
        except UserError:  # the model has no attention
            return None
        path = self.run.plots / "attention.png"
        draw(maps, path, "validation, first example")
        return path

    def _maps(self, learner: Learner) -> list[Seen]:
        words = self.data.preprocessor
        ours = labels(words.tokenizer) if words.series is None else step_numbers()
        theirs = labels(words.target_tokenizer)
        tokens, source = self.data.look_at(learner.model, "validation", MAX_TOKENS)
        with torch.autocast(learner.device.type, enabled=False):
            if source is None:
                return look(learner.model, tokens, ours)
            return look(learner.model, tokens, theirs, source, ours)
