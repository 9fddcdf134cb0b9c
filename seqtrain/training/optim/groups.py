"""Parameter groups by role and depth, for optimizers that treat them differently."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.front_ends import TokenEmbedding

ROLES = ("hidden", "other", "vectors")  # in the order of their groups: a checkpoint stores groups by number


def parameter_groups(model: SequenceModel, task: torch.nn.Module, layer_decay: float = 1.0) -> list[dict[str, Any]]:
    """Return groups by role: `hidden` matrices of the model, `other` matrices, and `vectors`, which do not decay.

    Args:
        model: Model. Frozen weights of model and task are left out.
        task: Task. Its head counts as the layer above the model's last one.
        layer_decay: If it is not 1, each layer has its own groups, with `lr_scale` = layer_decay ** (layers above it),
            the head on top and the embeddings below (Howard & Ruder 2018).

    Returns:
        Parameter groups for torch's optimizers, each with its `role` and `lr_scale`.

    Raises:
        UserError: Everything is frozen.
    """
    embeddings = embedding_ids(model)
    depths, head_depth = _depths(model, embeddings)
    # Adapters too: Muon gives all directions of an update the same size, but a low-rank change has few directions.
    others = embeddings | {id(weight) for name, weight in model.named_parameters() if ".parametrizations." in name}
    members: dict[tuple[int, int], list[Tensor]] = defaultdict(list)  # by index of the role, and depth
    for owner in (model, task):
        for weight in owner.parameters():
            if not weight.requires_grad:
                continue
            depth = head_depth
            if owner is model and layer_decay != 1:
                depth = depths.get(id(weight), 0)  # embeddings lie below all layers
            # A task's matrices map to the vocabulary or the labels: Muon is not designed for them.
            role = _role(weight, inner=owner is model and id(weight) not in others)
            members[ROLES.index(role), depth].append(weight)
    if not members:
        raise UserError("freeze: nothing is left to train; freeze fewer parts")
    groups = []
    for place, depth in sorted(members):
        group = {"params": members[place, depth], "role": ROLES[place], "lr_scale": layer_decay ** (head_depth - depth)}
        if ROLES[place] == "vectors":
            group["weight_decay"] = 0.0
        groups.append(group)
    return groups


def embedding_ids(model: SequenceModel) -> set[int]:
    """Return the `id` of every weight that maps tokens or positions to vectors."""
    embeddings = [module for module in model.modules() if isinstance(module, TokenEmbedding | torch.nn.Embedding)]
    return {id(weight) for module in (model.embed, *embeddings) for weight in module.parameters()}


def _role(weight: Tensor, *, inner: bool) -> str:
    """Return the role of a weight. `inner`: True if it belongs to the model, but not to an embedding."""
    if weight.dim() < 2:
        return "vectors"
    # Muon orthogonalises matrices only: kernels of convolutions have three dimensions.
    if inner and weight.dim() == 2:
        return "hidden"
    return "other"


def _depths(model: SequenceModel, embeddings: set[int]) -> tuple[dict[int, int], int]:
    """Return the layer, from 1, of every weight by `id`, except embeddings, and the depth of the task's head."""
    layers: dict[int, int | None] = {}
    last = 1
    for name, weight in model.named_parameters():
        if id(weight) in embeddings:
            continue
        layers[id(weight)] = layer = _layer(name)
        # Only layers with matrices count: a final norm may have its own number.
        if layer is not None and weight.dim() > 1:
            last = max(last, layer)
    return {key: min(layer or last, last) for key, layer in layers.items()}, last + 1


def _layer(name: str) -> int | None:
    """Return the layer of a weight of the model, from 1; None if it belongs to no layer, such as the final norm."""
    name = re.sub(r"parametrizations\.(\w+)\..*", r"\1", name)  # an adapter belongs to the layer that it changes
    number = re.search(r"(?:\.|_l)(\d+)", name)  # `blocks.0.`, and `weight_ih_l0` of torch's recurrent modules
    if number is None:
        return None
    return int(number[1]) + 1
