"""The memory that a training would take at least, held against this machine's before anything is allocated."""

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
    """Unavailable for a model that is more than this machine's memory; takes one on the meta device, without any."""
    sizes = [f"model.{key}={config.model[key]}" for key in ("dim", "num_layers") if key in config.model]
    with torch.device("meta"):
        state = (
            sum(tensor.nbytes for tensor in model.initial(config.data.batch_size or DEFAULT_LANES).values())
            if config.tbptt.carry
            else 0
        )
    check_memory(config, ", ".join(sizes), count(model), state)


def check_memory(config: DictConfig, what: str, parameters: float, state: int = 0) -> None:
    """Unavailable, in the name of `what`, where so many parameters and bytes of state cannot fit in memory.

    Of a GPU, and of weights that are shared out, only the weights themselves are counted: they are made here.
    """
    elsewhere = on_gpu(config) or config.trainer.strategy == "fsdp"
    words, copies = ("weights", 1) if elsewhere else ("weights, gradients and moments", OPTIMIZER_COPIES)
    needed = parameters * copies * (8 if config.trainer.precision == "64-true" else 4) + state
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise Unavailable(
            f"{what}: {words}{' and carried state' if state else ''} take {needed / 1e9:,.0f} GB, and this machine "
            f"has {memory / 1e9:,.0f}; use a smaller model"
        )
