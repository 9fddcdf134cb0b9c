"""Samples: what the model writes at each validation."""

from __future__ import annotations

from pytorch_lightning import Callback, Trainer

from seqtrain.callbacks.base_sink import Sink
from seqtrain.data.tokenizer import Tokenizer
from seqtrain.generate import continue_tokens
from seqtrain.learner import Learner
from seqtrain.runs import Run, write_text


class Samples(Callback):
    """Continues `prompt` by `length` tokens; to samples/step-*.txt and to every sink that takes text."""

    def __init__(
        self,
        *,
        prompt: str,
        length: int,
        temperature: float,
        top_k: int | None,
        top_p: float | None,
        run: Run,
        tokenizer: Tokenizer,
    ) -> None:
        self.prompt = prompt
        self.length = length
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.run = run
        self.tokenizer = tokenizer
        self.newest = ""

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        prompt = [self.tokenizer.start, *self.tokenizer.encode(self.prompt).tolist()]
        tokens = continue_tokens(
            pl_module.model,
            lambda hidden: pl_module.task.scores(pl_module.model, hidden),  # type: ignore[operator]
            [prompt],
            num_tokens=self.length,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
        )
        self.newest = self.prompt + self.tokenizer.decode([int(token) for token in tokens])
        step = trainer.global_step
        write_text(self.run.samples / f"step-{step:08d}.txt", self.newest)
        for logger in trainer.loggers:
            if isinstance(logger, Sink):
                logger.log_text("samples", self.newest, step)
