"""The optimizer's part of a checkpoint held against the run that is to go on from it.

What is expected comes from the optimizer itself: it is made from the run's config, and takes a step on zeros.
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


def check_groups(saved: Any, optimizer: Optimizer, moving: Sequence[str]) -> None:
    """Groups as they were just made, but for what is `moving`: what schedules change as they go."""
    expected = optimizer.state_dict()["param_groups"]
    if len(saved) != 1 or not isinstance(saved[0], dict):
        raise Mismatch("optimizer_states is not that of one optimizer")
    # States are checked one by one: a weight that no gradient has reached has none.
    alike({**saved[0], "state": {}}, {"state": {}, "param_groups": expected}, "optimizer_states")
    for number, (group, own) in enumerate(zip(saved[0]["param_groups"], expected, strict=True)):
        place = f"optimizer_states: group {number}"
        finite(group, place)
        # Of what schedules change only the kind is known, and that a rate is no step uphill.
        for key in own.keys() - {*moving, "params"}:
            if group[key] != own[key]:
                raise Mismatch(f"{place}: {key} is {shown(group[key])}, and this run has {own[key]}")
        if not group["lr"] >= 0:
            raise Mismatch(f"{place}: lr is {group['lr']}")


def check_states(saved: dict[str, Any], learner: Learner, step: int, updates: int) -> None:
    """For each weight the moments that this optimizer keeps for one of its shape.

    `updates`: the steps without those that were skipped.
    """
    keys = list(itertools.chain.from_iterable(group["params"] for group in saved["param_groups"]))
    states = saved["state"]
    if not isinstance(states, dict) or len(set(keys)) < len(keys) or not states.keys() <= set(keys):
        raise Mismatch("optimizer_states: holds moments of weights that are in no group, or in two")
    names = {id(weight): name for name, weight in learner.named_parameters()}
    expected: dict[Any, dict[str, Any]] = {}  # made once for all weights of a group that are alike
    remaining = iter(keys)
    for number, group in enumerate(_groups(learner)):
        for weight in group["params"]:
            key, kind = next(remaining), (number, weight.shape, weight.dtype)
            if key not in states:
                continue
            if kind not in expected:
                expected[kind] = _moments(learner, group, weight)
            _check_moments(states[key], expected[kind], updates, f"optimizer_states: {names[id(weight)]}")
    if not states and updates > 0 and _keeps_moments(learner):
        raise Mismatch(f"optimizer_states: holds no moments, after {step} steps")


def _groups(learner: Learner) -> list[dict[str, Any]]:
    return parameter_groups(learner.model, learner.task, learner.layer_decay)


def _keeps_moments(learner: Learner) -> bool:
    """Whether the optimizer keeps anything for any weight."""
    return any(_moments(learner, group, weight) for group in _groups(learner) for weight in group["params"])


def _moments(learner: Learner, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
    """What the optimizer keeps for such a weight: that of a step on zeros in its place."""
    assert learner.make_optimizer is not None
    zeros = torch.nn.Parameter(torch.zeros(weight.shape, dtype=weight.dtype))
    zeros.grad = torch.zeros_like(zeros)
    optimizer = learner.make_optimizer([{**group, "params": [zeros]}])
    optimizer.step(lambda: torch.zeros(()))  # type: ignore[arg-type]
    return dict(optimizer.state[zeros])


def _check_moments(saved: Any, expected: dict[str, Any], updates: int, place: str) -> None:
    if not isinstance(saved, dict):
        raise Mismatch(f"{place} is no moments")
    alike(saved, expected, place)
    finite(saved, place)
    if not 1 <= float(saved.get("step", 1)) <= updates:
        raise Mismatch(f"{place}: step is {float(saved['step']):g} after {updates} updates")
