"""Blocks that are compiled (trainer.compile=blocks) or recomputed (trainer.recompute=blocks) in training steps only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from seqtrain.errors import UserError
from seqtrain.models.layers.blocks import Block
from seqtrain.models.mixers.base import MixerBlock
from seqtrain.tasks.output import compiled_loss


def check_compiled(model: nn.Module) -> None:
    """Raise UserError if a model has no Transformer blocks, or this machine has no compiler."""
    # Recurrences are not compiled: torch would unroll them, with one copy of the cell for each token.
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


def recompute_blocks(model: nn.Module) -> int:
    """Make each block store only its input in training steps, and recompute the rest in the backward pass.

    Returns:
        The number of blocks.

    Raises:
        UserError: The model has no blocks.
    """
    blocks = [module for module in model.modules() if isinstance(module, Block | MixerBlock)]
    if not blocks:
        raise UserError("trainer.recompute=blocks: this model has no blocks; see tbptt.recompute for long chunks")
    for block in blocks:
        # Replaces `forward`, so that names of weights do not change. Without gradients torch only calls it.
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return len(blocks)


def as_written() -> AbstractContextManager[None]:
    """Return a context in which compiled blocks run uncompiled, so that validation has the numbers of `evaluate`."""
    return torch.compiler.set_stance("force_eager")


@contextmanager
def as_compiled() -> Iterator[None]:
    """Run compiled blocks and the loss of large vocabularies compiled, also within `as_written`."""
    with torch.compiler.set_stance("default"), compiled_loss():
        yield
