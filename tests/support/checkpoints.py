"""Checkpoints of tests: whether one is sound, and one that holds anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from seqtrain.runs.checkpoint import Unsound, _opened, save


def is_valid(path: Path) -> bool:
    """Whether `load` takes the file, and what it gives is what was written (by its digest).

    UserError where it cannot be read, which says nothing of what it holds.
    """
    try:
        _opened(path, tensors=False)
    except Unsound:
        return False
    return True


def save_any(content: Any, path: Path) -> None:
    """Write a checkpoint; what it cannot hold makes it a pickle, as seqtrain 0.1 and others wrote."""
    try:
        save(content, path)
    except TypeError:
        torch.save(content, path)
