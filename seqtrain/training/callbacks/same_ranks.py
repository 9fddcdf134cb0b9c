"""Check that all processes of a run hold equal weights and gradients, by a checksum at intervals."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor
from torch.optim import Optimizer

from seqtrain.distributed.ranks import all_gather
from seqtrain.errors import RunFailed
from seqtrain.training.learner import Learner

WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class SameRanks(Callback):
    """Compare gradients and weights over processes every `every` steps; raise RunFailed if they differ.

    It compares before the update, when gradients are reduced.
    """

    def __init__(self, *, every: int) -> None:
        self.every = every

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Learner, optimizer: Optimizer) -> None:  # type: ignore[override]
        if trainer.global_step % self.every:
            return
        weights = list(chain.from_iterable(group["params"] for group in optimizer.param_groups))
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        # Gradients first: one that differs makes weights differ, and the message should name the cause.
        for name, tensors in (("gradients", gradients), ("weights", weights)):
            checksums = all_gather(checksum(tensors))
            for rank, other in enumerate(checksums):
                if other != checksums[0]:
                    raise RunFailed(
                        f"step {trainer.global_step + 1}: the {name} of process {rank} are not those of process 0; "
                        "what they compute has come apart, by a fault of the machine or of a model's own code"
                    )


def checksum(tensors: Iterable[Tensor]) -> int:
    """Return a number that depends on every bit of the tensors and on their order; equal bits give equal numbers."""
    sums = []
    for tensor in tensors:
        # As integers: sums of floats would round small differences away, and hide -0 and kinds of nan.
        bits = tensor.detach().contiguous().view(WIDTHS[tensor.element_size()])
        sums.append(bits.sum(dtype=torch.int64))
    if not sums:
        return 0
    # Read together: this waits for a GPU once, and not for each tensor.
    return sum(place * value for place, value in enumerate(torch.stack(sums).tolist(), start=1))
