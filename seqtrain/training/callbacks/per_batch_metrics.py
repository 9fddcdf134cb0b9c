"""Sums and counts of each batch of an evaluation, for a bootstrap over batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pytorch_lightning import Callback, Trainer

from seqtrain.tasks.base import Reduced
from seqtrain.training.accumulators import Accumulators, Terms, merged
from seqtrain.training.learner import Learner


class PerBatchMetrics(Callback):
    """Keep the sums and counts of every batch separately. The evaluation's own metrics do not change."""

    def __init__(self) -> None:
        self.batches: list[Reduced] = []
        self.measure: Callable[[Reduced], dict[str, float]] | None = None  # set once there are batches
        self._terms: list[Terms] = []

    def on_validation_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.batches.append(pl_module.eval_sums.read())
        self._terms.append(pl_module.eval_sums.terms)
        pl_module.eval_sums = Accumulators()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        pl_module.eval_sums = merged(self._terms)  # for the metrics of the learner, which stay the same
        self.measure = partial(pl_module.task.measure, facts=pl_module.facts[pl_module.split])
