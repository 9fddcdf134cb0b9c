"""Weights of one run as the beginning of another: pretrain, then fine-tune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from seqtrain.errors import UserError, did_you_mean
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.base import Task


def adopt(
    model: SequenceModel, task: Task, weights: dict[str, Tensor], *, same_task: bool, say: Callable[[str], None]
) -> None:
    """Copies what fits of `weights` (of a checkpoint's state_dict) into model and task, and says what was done.

    Of an embedding with more special tokens than the origin's the known rows are copied. A head is copied only where
    the task is the same. Raises UserError, in one line, for weights of the model that have another shape.
    """
    own = {f"model.{name}": value for name, value in model.state_dict().items()}
    own |= {f"task.{name}": value for name, value in task.state_dict().items()}
    loaded, new, faults = [], [], []
    for name, value in own.items():
        given = weights.get(name) if same_task or name.startswith("model.") else None
        if given is None:
            new.append(name)
        elif given.shape == value.shape:
            loaded.append(name)
            value.copy_(given)
        elif "embed." in name and given.shape[1:] == value.shape[1:] and 0 < len(value) - len(given) < 3:
            loaded.append(name)
            new.append(f"{len(value) - len(given)} special tokens of {name}")
            value[: len(given)].copy_(given)
        elif name.startswith("task."):
            new.append(name)
        else:
            faults.append(f"{name} is {_shape(given)} there and {_shape(value)} here")
    if faults:
        raise UserError(_incompatibility(model, weights, faults))
    ours = [name for name in own if name.startswith("model.") and "embed." not in name]
    known = sum(name in loaded for name in ours)
    if not known:
        raise UserError("init_from: that run's model has no weight of this model's; use the same model")
    if 2 * known < len(ours):
        raise UserError(f"init_from: that run has only {known} of this model's {len(ours)} weights; use the same model")
    left = [name for name in weights if name not in own or name in new]
    say(f"init_from: loaded {_named(loaded)}; new: {_named(new)}; left behind: {_named(left)}")


def _incompatibility(model: SequenceModel, weights: dict[str, Tensor], faults: Sequence[str]) -> str:
    """One line for weights of other shapes: of another width, which each of them has, or the first of them."""
    embedding = weights.get("model.embed.weight")
    if embedding is not None and embedding.shape[-1] != model.dim:
        return (
            f"init_from: model.dim={model.dim} here, and that run's model has {embedding.shape[-1]}; "
            f"set model.dim={embedding.shape[-1]}"
        )
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"init_from: {faults[0]}{more}; set the same model options"


def freeze(model: SequenceModel, names: Sequence[str]) -> int:
    """Stops the training of every weight of the model whose name begins with one of `names`; gives how many numbers.

    Names are those of modules, with dots: embed, layer, blocks.0; `all` is the whole model.
    """
    count = 0
    known = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
    for wanted in names:
        found = [
            value
            for name, value in model.named_parameters()
            if wanted == "all" or name == wanted or name.startswith(f"{wanted}.")
        ]
        if not found:
            raise UserError(f"freeze={wanted}: the model has no such part{did_you_mean(wanted, known)}")
        for value in found:
            count += value.numel() if value.requires_grad else 0
            value.requires_grad_(False)
    return count


def _named(names: Sequence[str]) -> str:
    """How many, and the modules that they belong to."""
    if not names:
        return "nothing"
    parts: dict[str, Any] = dict.fromkeys(_part(name) for name in names)
    listed = list(parts)
    shown = ", ".join(listed[:6]) + (", ..." if len(listed) > 6 else "")
    return f"{len(names)} ({shown})"


def _part(name: str) -> str:
    return name if " " in name else ".".join(name.split(".")[:2])


def _shape(value: torch.Tensor) -> str:
    return "x".join(map(str, value.shape))
