"""Least memory that a training needs, compared with this machine's before anything is allocated."""

from __future__ import annotations

import os

import torch
from omegaconf import DictConfig

from seqtrain.config.options import DEFAULT_LANES
from seqtrain.errors import Unavailable
from seqtrain.models.base import SequenceModel
from seqtrain.training.cost import OPTIMIZER_COPIES, count
from seqtrain.training.trainer import on_gpu


def check_model(config: DictConfig, model: SequenceModel) -> None:
    """Raise Unavailable if a model, on the meta device, needs more than this machine's memory."""
    sizes = [f"model.{key}={config.model[key]}" for key in ("dim", "num_layers") if key in config.model]
    state_bytes = 0
    if config.tbptt.carry:
        with torch.device("meta"):
            state = model.initial(config.data.batch_size or DEFAULT_LANES)
        state_bytes = sum(tensor.nbytes for tensor in state.values())
    check_memory(config, ", ".join(sizes), count(model), state_bytes)


def check_memory(config: DictConfig, what: str, parameters: float, state: int = 0) -> None:
    """Raise Unavailable if this many parameters cannot fit in memory.

    Args:
        config: Config with the precision and the device.
        what: The options that set the size, for the message.
        parameters: Number of parameters.
        state: Bytes of the carried state.
    """
    kept, copies = "weights, gradients and moments", OPTIMIZER_COPIES
    # A GPU holds gradients and moments, other processes hold shards; but all weights are created here.
    if on_gpu(config) or config.trainer.strategy == "fsdp":
        kept, copies = "weights", 1
    if state:
        kept += " and carried state"
    bytes_each = 8 if config.trainer.precision == "64-true" else 4
    # At least: activations, which depend on the batch, come on top.
    needed = parameters * copies * bytes_each + state
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise Unavailable(
            f"{what}: {kept} take {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f}; use a smaller model"
        )
