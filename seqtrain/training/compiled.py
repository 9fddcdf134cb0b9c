"""trainer.compile=blocks: Transformer blocks compiled by torch, for training steps only."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager

import torch
from torch import nn

from seqtrain.errors import UserError
from seqtrain.models.layers.blocks import Block


def check_compiled(model: nn.Module) -> None:
    """Raise UserError if a model has no Transformer blocks, or this machine no compiler."""
    # Recurrences are left alone: torch would unroll them, one copy of the cell for each token.
    if not _blocks(model):
        raise UserError("trainer.compile=blocks: this model has no Transformer blocks; leave it out")
    compilers = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]
    if not any(map(shutil.which, compilers)):
        raise UserError(f"trainer.compile=blocks: no C++ compiler is installed ({' or '.join(compilers)})")


def compile_blocks(model: nn.Module) -> int:
    """Set each Transformer block to be compiled at its first training step; names of weights do not change.

    Returns:
        The number of blocks.
    """
    blocks = _blocks(model)
    for block in blocks:
        block.compile()
    return len(blocks)


def _blocks(model: nn.Module) -> list[Block]:
    return [module for module in model.modules() if isinstance(module, Block)]


def as_written() -> AbstractContextManager[None]:
    """Return a context in which compiled blocks run uncompiled, so that validation has the numbers of `evaluate`."""
    return torch.compiler.set_stance("force_eager")


def as_compiled() -> AbstractContextManager[None]:
    """Return a context in which compiled blocks run compiled, also within `as_written`."""
    return torch.compiler.set_stance("default")
