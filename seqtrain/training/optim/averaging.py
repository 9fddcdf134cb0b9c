"""Average of the weights over steps: Lightning's callback, active until the end of each validation."""

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

    Training itself continues from the weights of the last step. A checkpoint contains both: `state_dict` is the
    average. After n updates the decay is at most (1 + n) / (10 + n); otherwise initial weights would make up much of
    the average of a short training.
    """

    def __init__(self, *, decay: float) -> None:
        """Store the share of the average that is kept at each step, from 0 to below 1."""
        super().__init__()
        self.decay = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            # Lightning would copy the whole module with its other state, and warn of its `configure_model`.
            parts = nn.ModuleDict(dict(pl_module.named_children()))
            # Buffers are copied, not averaged: they are tables computed from the options, and some contain infinities.
            self._average_model = AveragedModel(parts, use_buffers=False, multi_avg_fn=self._average)

    def _average(self, averages: Sequence[Tensor], weights: Sequence[Tensor], count: Any) -> None:
        n = int(count)
        torch._foreach_lerp_(list(averages), list(weights), 1 - min(self.decay, (1 + n) / (10 + n)))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._average_model is not None
        self._average_model.to(pl_module.device)  # Lightning creates it before the weights are on their device

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the average active for samples and plots; `on_validation_end` ends it before a checkpoint is saved."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_epoch_end(trainer, pl_module)
