"""Weights with which two models become the two directions of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from seqtrain.errors import UserError

Weights = Mapping[str, Shaped[Tensor, "..."]]

OF_LAYER = re.compile(r"layer\.(?P<kind>\w+)_l(?P<layer>\d+)")
DIRECTIONS = ("forward", "backward")  # the order of the two runs, and of the halves of the units


def side_by_side(
    own: Weights, runs: tuple[Weights, Weights], *, separator: int, name_of: Callable[[int, int, str], str]
) -> dict[str, Shaped[Tensor, "..."]]:
    """Return weights of a bidirectional model that equals two one-directional stacks, each with half of its units.

    A layer that reads both directions starts with zeros for the other direction; training may change them.

    Args:
        own: The model's current weights by name.
        runs: Weights of the forward and of the backward stack (recurrent, one direction), named as in a checkpoint
        without the leading `model.`.
        separator: The token at which a text ends. Backward reading begins with it, as the backward stack began with its
        start token.
        name_of: Maps direction (0, 1), layer, and torch's name of a weight to the model's name.

    Returns:
        New weights by the model's names. Weights without a counterpart in the model have a name with a space.

    Raises:
        UserError: If the runs' layers or shapes differ from those of the model's directions.
    """
    found = {"embed.weight": _embedding(own, runs, separator)}
    for direction, weights in enumerate(runs):
        for name, value in weights.items():
            match = OF_LAYER.fullmatch(name)
            if match is None:
                if name != "embed.weight":
                    found[f"{name} of the {DIRECTIONS[direction]} run"] = value
                continue
            target = name_of(direction, int(match["layer"]), match["kind"])
            if target not in own:
                raise UserError(
                    f"init_from: the {DIRECTIONS[direction]} run has {name}, but this model has no {target}; set the "
                    "same model.num_layers and model.bias"
                )
            found[target] = _in_half(value, own[target], direction, name)
    return found


def _embedding(whole: Weights, runs: tuple[Weights, Weights], separator: int) -> Float[Tensor, "V D"]:
    """Concatenate the vectors of both runs in one table. Other special tokens keep their vectors."""
    own, widths = whole["embed.weight"], []
    for direction, weights in zip(DIRECTIONS, runs, strict=True):
        if "embed.projection" in {*weights, *whole}:
            raise UserError("init_from: two runs can be combined only with model.embed_dim=null, in both runs and here")
        if "embed.weight" not in weights or not any(map(OF_LAYER.fullmatch, weights)):
            raise UserError(
                f"init_from: the {direction} run has no one-directional layers; use two runs of model=lstm, "
                "gru or rnn, as here"
            )
        widths.append(weights["embed.weight"].shape[1])
    if 2 * widths[0] != own.shape[1] or widths[0] != widths[1]:
        raise UserError(
            f"init_from: model.dim={own.shape[1]} here has two directions of {own.shape[1] // 2}, but the two runs "
            f"have model.dim={widths[0]} and {widths[1]}; each must have half of this width"
        )
    table = own.clone()
    for direction, weights in enumerate(runs):
        given = weights["embed.weight"]
        half = slice(direction * widths[0], (direction + 1) * widths[0])
        if len(given) > len(own):
            raise UserError(
                f"init_from: the {DIRECTIONS[direction]} run has {len(given)} tokens, but this model has {len(own)}"
            )
        table[: len(given), half] = given
        if DIRECTIONS[direction] == "backward" and len(given) <= separator < len(own):
            table[separator, half] = given[separator - 1]  # the start token, whose id is one less than the separator's
    return table


def _in_half(
    given: Shaped[Tensor, "..."], own: Shaped[Tensor, "..."], direction: int, name: str
) -> Shaped[Tensor, "..."]:
    """Return a weight unchanged if it fits, else placed in its direction's columns, with zeros in the other half.

    Raise UserError if neither fits the shape of `own`.
    """
    if given.shape == own.shape:
        return given
    if given.dim() == 2 and (len(given), 2 * given.shape[1]) == tuple(own.shape):
        parts = [torch.zeros_like(given), torch.zeros_like(given)]
        parts[direction] = given
        return torch.cat(parts, 1)
    raise UserError(
        f"init_from: {name} of the {DIRECTIONS[direction]} run is {tuple(given.shape)}, but a direction of this model "
        f"takes {tuple(own.shape)}; set the same kind of model"
    )
