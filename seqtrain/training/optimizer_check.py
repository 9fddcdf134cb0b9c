"""Check the optimizer's part of a checkpoint against the run that is to resume from it.

The expected state comes from the optimizer itself: it is made from the run's config and takes a step on zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seqtrain.runs.expected import Mismatch, alike, finite
from seqtrain.runs.identity import shown
from seqtrain.training.optim.groups import parameter_groups

if TYPE_CHECKING:
    from seqtrain.training.learner import Learner

SCHEDULED = ("lr", "momentum", "betas", "min_lr", "max_lr", "base_momentum", "max_momentum")
"""Entries of an optimizer's group that schedules of torch change as they go."""


def check_optimizer(saved: Any, optimizer: Optimizer, learner: Learner, moving: Sequence[str], updates: int) -> None:
    """Raise Mismatch unless this optimizer, with these hyperparameters, could have written what was saved.

    Args:
        saved: The list of optimizer states of a checkpoint.
        optimizer: The run's own optimizer, just made.
        learner: Learner that holds the weights and makes the optimizer.
        moving: Hyperparameters that schedules change.
        updates: Steps without those that were skipped.
    """
    place = "optimizer_states"
    if len(saved) != 1 or not isinstance(saved[0], dict):
        raise Mismatch(f"{place} is not that of one optimizer")
    finite(saved, place)
    groups, states = saved[0]["param_groups"], saved[0]["state"]
    # Only the number of weights is compared: FSDP numbers or names them differently.
    found, expected = (list(map(_counted, each)) for each in (groups, optimizer.param_groups))
    alike(found, expected, f"{place}: param_groups")
    for number, (group, own) in enumerate(zip(found, expected, strict=True)):
        for key in own.keys() - set(moving):
            if group[key] != own[key]:
                raise Mismatch(f"{place}: group {number}: {key} is {shown(group[key])}, and this run has {own[key]}")
    keys = itertools.chain.from_iterable(group["params"] for group in groups)
    names = {id(weight): name for name, weight in learner.named_parameters()}
    moments: dict[Any, dict[str, Any]] = {}  # made once for all weights of a group that are alike
    for number, group in enumerate(parameter_groups(learner.model, learner.task, learner.layer_decay)):
        for weight, key in zip(group["params"], keys, strict=False):
            kind = number, weight.shape, weight.dtype
            if kind not in moments:
                moments[kind] = _moments(learner, group, weight)
            if key in states:  # a weight that no gradient has reached has none
                alike(states[key], moments[kind], f"{place}: {names[id(weight)]}")
    if not states and updates > 0 and any(moments.values()):
        raise Mismatch(f"{place}: holds no moments, after {updates} updates")


def _counted(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group with the number of its weights; tuples as lists, as FSDP keeps them after loading."""
    counted = {key: list(value) if isinstance(value, tuple) else value for key, value in group.items()}
    return {**counted, "params": len(group["params"])}


def _moments(learner: Learner, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
    """Return the state that the optimizer keeps for such a weight, from a step on zeros."""
    assert learner.make_optimizer is not None
    zeros = torch.nn.Parameter(torch.zeros(weight.shape, dtype=weight.dtype))
    zeros.grad = torch.zeros_like(zeros)
    optimizer = learner.make_optimizer([{**group, "params": [zeros]}])
    optimizer.step(lambda: torch.zeros(()))  # type: ignore[arg-type]
    return dict(optimizer.state[zeros])
