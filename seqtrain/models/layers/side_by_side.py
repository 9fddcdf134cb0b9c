"""Weights with which two models, read side by side, become the two directions of one."""

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
    """Return weights of a bidirectional model that reads as two one-directional stacks, each with half of its units.

    A layer that reads both directions begins with zeros for the other direction; training may change them.

    Args:
        own: Weights of the model by name, as they are.
        runs: Weights of the forward and of the backward stack, recurrent and of one direction, as a checkpoint names
            them, without the leading `model.`.
        separator: The token at which a text ends. Reading backwards begins there, as the backward stack's own reading
            began at its start token.
        name_of: The model's name of a weight by direction (0, 1), layer, and the name that torch gives it.

    Returns:
        New weights by the model's names. Weights without a place in the model have a name with a space.

    Raises:
        UserError: If the runs' layers, or their shapes, are not those of the model's directions.
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
                    f"init_from: the {DIRECTIONS[direction]} run has {name}, and this model no {target}; set the same "
                    "model.num_layers and model.bias"
                )
            found[target] = _in_half(value, own[target], direction, name)
    return found


def _embedding(whole: Weights, runs: tuple[Weights, Weights], separator: int) -> Float[Tensor, "V D"]:
    """Concatenate the vectors of both runs in one table. Special tokens that neither run had keep their own."""
    own, widths = whole["embed.weight"], []
    for direction, weights in zip(DIRECTIONS, runs, strict=True):
        if "embed.projection" in {*weights, *whole}:
            raise UserError("init_from: two runs become one where model.embed_dim=null, in them and here")
        if "embed.weight" not in weights or not any(map(OF_LAYER.fullmatch, weights)):
            raise UserError(
                f"init_from: the {direction} run has no layers of one direction; begin with two runs of model=lstm, "
                "gru or rnn as it stands here"
            )
        widths.append(weights["embed.weight"].shape[1])
    if 2 * widths[0] != own.shape[1] or widths[0] != widths[1]:
        raise UserError(
            f"init_from: model.dim={own.shape[1]} here has two directions of {own.shape[1] // 2}, and the two runs "
            f"have model.dim={widths[0]} and {widths[1]}; each must have half of it"
        )
    table = own.clone()
    for direction, weights in enumerate(runs):
        given = weights["embed.weight"]
        half = slice(direction * widths[0], (direction + 1) * widths[0])
        if len(given) > len(own):
            raise UserError(
                f"init_from: the {DIRECTIONS[direction]} run knows {len(given)} tokens, here are {len(own)}"
            )
        table[: len(given), half] = given
        if DIRECTIONS[direction] == "backward" and len(given) <= separator < len(own):
            table[separator, half] = given[separator - 1]  # its start, which stands right before the separator
    return table


def _in_half(
    given: Shaped[Tensor, "..."], own: Shaped[Tensor, "..."], direction: int, name: str
) -> Shaped[Tensor, "..."]:
    """Return a weight unchanged if it fits, else in the columns that its direction reads, with zeros in the other half.

    Raise UserError if neither fits the shape of `own`.
    """
    if given.shape == own.shape:
        return given
    if given.dim() == 2 and (len(given), 2 * given.shape[1]) == tuple(own.shape):
        parts = [torch.zeros_like(given), torch.zeros_like(given)]
        parts[direction] = given
        return torch.cat(parts, 1)
    raise UserError(
        f"init_from: {name} of the {DIRECTIONS[direction]} run is {tuple(given.shape)}, and a direction of this model "
        f"takes {tuple(own.shape)}; set the same kind of model"
    )
