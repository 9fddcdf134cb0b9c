"""Maps of attention at the end of training, as a picture: where the model looks in one example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.errors import Fault
from seqtrain.inference.attention_maps import Seen, draw, labels, look
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import ExampleTask
from seqtrain.training.learner import Learner
from seqtrain.training.loggers.base import Sink, say

if TYPE_CHECKING:
    from seqtrain.training.data import Data

TOKENS = 30  # of the example, on each side


class AttentionMaps(Callback):
    """Draws plots/attention.png of the beginning of validation's first example, where the model attends."""

    def __init__(self, *, run: Run, data: Data) -> None:
        self.run = run
        self.data = data

    def on_fit_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if not trainer.is_global_zero:
            return
        training = pl_module.training
        pl_module.eval()
        try:
            maps = self._maps(pl_module)
            path = self.run.plots / "attention.png"
            draw(maps, path, "validation, first example")
        except Fault:  # the model does not attend
            return
        except Exception as error:  # a picture must not fail a run
            say(f"the maps of attention could not be drawn: {error}")
            return
        finally:
            pl_module.train(training)
        for logger in trainer.loggers:
            if isinstance(logger, Sink):
                logger.log_image("attention", path, trainer.global_step)

    def _maps(self, learner: Learner) -> list[Seen]:
        model, words = learner.model, self.data.vocabularies
        ours, theirs = labels(words.tokenizer), labels(words.target_tokenizer)
        device = next(model.parameters()).device
        with torch.autocast(device.type, enabled=False):
            tokens, target = self._example()
            if target is None:
                return look(model, tokens, ours)
            if getattr(model, "target_embed", None) is None:  # reads the source as a prefix of the target
                return look(model, [*tokens, *target], ours)
            return look(model, target, theirs, tokens, ours)

    def _example(self) -> tuple[list[int], list[int] | None]:
        """The first tokens of the example, and of its target where it has one."""
        if not isinstance(self.data.reader, ExampleTask):
            document = self.data.corpora["validation"].tokens[: TOKENS - 1]
            return [self.data.tokenizer.start, *document.tolist()], None
        examples = self.data.examples("validation")
        index = np.array([0])
        batch = examples.collate(index, 0, examples.totals(index, 0))
        target = getattr(batch, "target_tokens", None)
        return batch.tokens[0, :TOKENS].tolist(), None if target is None else target[0, :TOKENS].tolist()
