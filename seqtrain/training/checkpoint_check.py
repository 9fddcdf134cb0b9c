"""Check that a checkpoint belongs to the run that resumes from it, before any of it is used.

The digest of a file detects damage, but not an intact file of another run. With such a file, a fused optimizer would
read and write beyond the memory of tensors of other shapes. So names, shapes and types of weights, moments and carried
state must equal those of a learner and an optimizer newly created from the run's config.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seqtrain.errors import UserError
from seqtrain.runs.identity import shown
from seqtrain.training.optim.groups import parameter_groups

if TYPE_CHECKING:
    from pytorch_lightning import Trainer

    from seqtrain.training.learner import Learner


class Mismatch(ValueError):
    """An entry of a checkpoint differs from what the run would have written; the message says which, and how."""


def alike(found: Any, expected: Any, place: str) -> None:
    """Raise Mismatch unless both have equal names, lengths, types and shapes. If None is expected, any value fits.

    Args:
        found: Value read from the file.
        expected: Value as this run would have written it.
        place: Name of the entry, for the message.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        odd = sorted(map(str, found.keys() ^ expected.keys()))
        if odd:
            raise Mismatch(f"{place}: {odd[0]} is {'missing' if odd[0] in map(str, expected) else 'unknown'}")
        for key, below in expected.items():
            alike(found[key], below, f"{place}: {key}")
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if len(found) != len(expected):
            raise Mismatch(f"{place}: {len(found)} entries, but this run has {len(expected)}")
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            alike(one, other, f"{place}: {number}")
    elif isinstance(expected, Tensor) and isinstance(found, Tensor):
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise Mismatch(f"{place} is {_kind(found)}, but this run has {_kind(expected)}")
        # Fused optimizers ignore strides: they read a tensor as contiguous memory.
        if not found.is_contiguous() and found.stride() != expected.stride():
            raise Mismatch(f"{place} has another memory layout than in this run")
    elif expected is not None and _kind(found) != _kind(expected):
        raise Mismatch(f"{place} is {_kind(found)}, but this run has {_kind(expected)}")


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of {'x'.join(map(str, value.shape)) or 'one number'}"
    return "a number" if type(value) in (int, float) else type(value).__name__


def check(saved: Any, path: Path, learner: Learner, trainer: Trainer, *, max_steps: int) -> None:
    """Raise UserError, in one line, unless the checkpoint fits this run.

    Args:
        saved: The contents of the file, on the CPU.
        path: The file, for the message.
        learner: Learner of the run.
        trainer: Trainer of the run.
        max_steps: Maximum number of steps of the whole training.
    """
    try:
        if (step := saved["global_step"]) > max_steps:
            raise UserError(
                f"trainer.max_steps, trainer.max_epochs, trainer.max_seconds: allow {max_steps} steps, but checkpoint "
                f"{path} is already at step {step}; raise the limit"
            )
        check_weights(saved["state_dict"], learner.state_dict())
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        if any(hasattr(callback, "_average_model") for callback in callbacks):  # Lightning's WeightAveraging
            check_weights(saved["current_model_state"], learner.state_dict(), "current_model_state")
        ours = saved["seqtrain"]
        lanes = learner.lanes if learner.carry else 0
        alike(ours["carried"], learner.model.initial(lanes) if lanes else {}, "seqtrain: carried")
        optimizer, moving = learner.configure_optimizers(), ("lr",)  # only to compare: Lightning makes another
        if isinstance(optimizer, dict):
            optimizer, moving = optimizer["optimizer"], SCHEDULED
        check_optimizer(saved["optimizer_states"], optimizer, learner, moving, step - ours["skipped"][0])
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # values of unexpected types raise these
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise UserError(
            f"checkpoint {path}: this run cannot continue from it: {reason}; restore the original file, or "
            "move this one elsewhere to continue from the previous one"
        ) from None


def check_weights(saved: Any, expected: dict[str, Tensor], place: str = "state_dict") -> None:
    """Raise Mismatch unless weights have the expected names, shapes and types and are finite."""
    alike(saved, expected, place)
    for name, weight in saved.items():
        if not bool(torch.isfinite(weight).all()):
            raise Mismatch(f"{place}[{name!r}] contains nan or inf")


SCHEDULED = ("lr", "momentum", "betas", "min_lr", "max_lr", "base_momentum", "max_momentum")
"""Entries of an optimizer's group that torch's schedules change."""


def check_optimizer(saved: Any, optimizer: Optimizer, learner: Learner, moving: tuple[str, ...], updates: int) -> None:
    """Raise Mismatch unless this optimizer, with these hyperparameters, could have written what was saved.

    Args:
        saved: The list of optimizer states of a checkpoint.
        optimizer: The run's own optimizer, newly created.
        learner: Learner that holds the weights and makes the optimizer.
        moving: Hyperparameters that schedules change.
        updates: Number of steps, excluding skipped ones.
    """
    place = "optimizer_states"
    if len(saved) != 1 or not isinstance(saved[0], dict):
        raise Mismatch(f"{place} does not have exactly one optimizer")
    groups, states = saved[0]["param_groups"], saved[0]["state"]
    # Only the number of weights is compared: FSDP numbers or names them differently.
    found, expected = (list(map(_counted, each)) for each in (groups, optimizer.param_groups))
    alike(found, expected, f"{place}: param_groups")
    for number, (group, own) in enumerate(zip(found, expected, strict=True)):
        for key in own.keys() - set(moving):
            if group[key] != own[key]:
                raise Mismatch(f"{place}: group {number}: {key} is {shown(group[key])}, but this run has {own[key]}")
    keys = itertools.chain.from_iterable(group["params"] for group in groups)
    names = {id(weight): name for name, weight in learner.named_parameters()}
    moments: dict[Any, dict[str, Any]] = {}  # created once for all equal weights of a group
    for number, group in enumerate(parameter_groups(learner.model, learner.task, learner.layer_decay)):
        for weight, key in zip(group["params"], keys, strict=False):
            kind = number, weight.shape, weight.dtype
            if kind not in moments:
                moments[kind] = _moments(learner, group, weight)
            if key in states:  # a weight without any gradient so far has none
                alike(states[key], moments[kind], f"{place}: {names[id(weight)]}")
    if not states and updates > 0 and any(moments.values()):
        raise Mismatch(f"{place}: has no moments after {updates} updates")


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
