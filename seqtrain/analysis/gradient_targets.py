"""Targets of a batch, one at a time: their positions, and the batch with a single target."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seqtrain.data.batching.stream import IGNORED


def unit(batch: Any) -> str:
    """Return the unit of distance in words, as the model reads its input."""
    # A patch of several rows is one, since the model reads it as one.
    return "time step" if batch.tokens.is_floating_point() else "token"


def present(targets: Tensor) -> Bool[Tensor, "B T"]:
    """Return True at positions that have a target."""
    found = ~targets.isnan() if targets.is_floating_point() else targets != IGNORED
    return found.flatten(2).any(2) if found.dim() > 2 else found


def at(batch: Any, place: int) -> Int[Tensor, " B"]:
    return torch.full((len(batch.targets),), place)


def with_one_target(batch: Any, places: Int[Tensor, " B"]) -> Any:
    """Return the batch with only one target in each lane, the one at its given position."""
    targets = batch.targets
    blank = torch.full_like(targets, torch.nan if targets.is_floating_point() else IGNORED)
    lanes = torch.arange(len(targets))
    blank[lanes, places] = targets[lanes, places]
    own = copy.copy(batch)
    own.targets = blank
    return own


def chosen(present: Bool[np.ndarray, "B T"], share: float) -> tuple[Int[np.ndarray, " B"], Bool[np.ndarray, " B"]]:
    """Return for each example the target at this share of its targets, and whether it has any."""
    count = present.sum(1)
    wanted = np.minimum((count * share).astype(int), np.maximum(count - 1, 0))
    ordered = np.argsort(~present, axis=1, kind="stable")  # positions with a target come first, in order
    return ordered[np.arange(len(count)), wanted], count > 0
