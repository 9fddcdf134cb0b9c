"""Parameter groups by role and depth, for optimizers that treat them differently."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.tasks.base import Task


def parameter_groups(model: SequenceModel, task: Task, layer_decay: float = 1.0) -> list[dict[str, Any]]:
    """Groups by role: `hidden` matrices of the model, `other` matrices, and `vectors`, which do not decay.

    With `layer_decay` each layer has groups of its own, with `lr_scale` = layer_decay ** (layers above it), the task's
    head on top and the embeddings below (Howard & Ruder 2018). Weights that are frozen are in none.
    """
    fronts = [part for part in model.modules() if isinstance(part, TokenEmbedding | torch.nn.Embedding)]
    outside = {id(parameter) for part in (model.embed, *fronts) for parameter in part.parameters()}
    numbered = [(value, _layer(name)) for name, value in model.named_parameters() if id(value) not in outside]
    # Layers are counted by their matrices: a last norm may have a number of its own.
    top = max((layer for value, layer in numbered if layer and value.dim() > 1), default=1) + 1
    depths = {id(value): min(layer or top, top - 1) for value, layer in numbered}
    found: dict[tuple[str, int], list[Tensor]] = {}
    for owner in (model, task):
        tables = {id(part.weight) for part in owner.modules() if isinstance(part, torch.nn.Embedding)}
        for parameter in filter(lambda parameter: parameter.requires_grad, owner.parameters()):
            inside = owner is model and id(parameter) not in outside | tables
            role = "vectors" if parameter.dim() < 2 else "hidden" if inside and parameter.dim() == 2 else "other"
            depth = top if owner is task else depths.get(id(parameter), 0)
            found.setdefault((role, depth if layer_decay != 1 else top), []).append(parameter)
    if not found:
        raise UserError("freeze: nothing is left to train; leave some part out")
    roles = ("hidden", "other", "vectors")
    return [
        {"params": parameters, "role": role, "lr_scale": layer_decay ** (top - depth)}
        | ({"weight_decay": 0.0} if role == "vectors" else {})
        for (role, depth), parameters in sorted(found.items(), key=lambda item: (roles.index(item[0][0]), item[0][1]))
    ]


def _layer(name: str) -> int | None:
    """The layer that a weight of the model belongs to, from 1; None where it belongs to none, as the last norm does."""
    numbers = re.findall(r"(?:\.|_l)(\d+)", name)
    return int(numbers[0]) + 1 if numbers else None
