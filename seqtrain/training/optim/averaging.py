"""Average of the weights over steps: Lightning's callback, kept until all that shows a validation has been called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class AveragedWeights(WeightAveraging):
    """Exponential moving average of the weights, which is validated, ranked, evaluated and exported in their place.

    Training itself goes on with the weights of the last step, and a checkpoint holds both: `state_dict` is the average.
    Early on the average forgets faster, by (1 + n) / (10 + n) after n updates, or a short training would end with a
    good part of its first weights.
    """

    def __init__(self, *, decay: float) -> None:
        """Store the share of the average that stays at each step, from 0 to below 1."""
        super().__init__()
        self.decay = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            # Lightning copies the whole module; ours holds a run with open files beside the weights.
            parts = nn.ModuleDict(dict(pl_module.named_children()))
            # Buffers are tables that follow from the options, and some hold infinities: they are copied.
            self._average_model = AveragedModel(parts, use_buffers=False, multi_avg_fn=self._average)

    def _average(self, averages: Sequence[Tensor], weights: Sequence[Tensor], count: Any) -> None:
        n = int(count)
        torch._foreach_lerp_(list(averages), list(weights), 1 - min(self.decay, (1 + n) / (10 + n)))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._average_model is not None
        self._average_model.to(pl_module.device)  # Lightning makes it before the weights are on their device

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the average for samples and pictures; the callback of the checkpoints stands behind this one."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_epoch_end(trainer, pl_module)
