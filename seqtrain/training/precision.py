"""Lightning's bf16 precision, with weights cast once a step."""

from __future__ import annotations

import torch
from pytorch_lightning.plugins.precision import MixedPrecision


class CachedPrecision(MixedPrecision):
    """Autocast that keeps each weight's bf16 copy until the step ends; Lightning's casts it at each use.

    A recurrence uses its weights again at every token.
    """

    def autocast_context_manager(self) -> torch.autocast:
        return torch.autocast(self.device, torch.bfloat16)
