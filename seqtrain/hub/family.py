"""A family of published models: how its config.json reads as options of ours, and its weights as weights of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqtrain.errors import UserError
from seqtrain.hub.names import Rule

Config = Mapping[str, Any]

ACTIVATIONS = {
    **{"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"},
    **{"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"},
}
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}  # as config.json has ours
"""Activations by their names in config.json."""


class Unfit(Exception):
    """A model of a known family with an option that ours does not have; the message says which."""


@dataclass(frozen=True)
class Family:
    """A `model_type` of config.json.

    Args:
        model: Our model.
        prefix: What the names of weights begin with, unless the folder holds the bare model.
        options: Returns the options of our model.
        rules: Returns the rules of the weights of the model; the embedding of tokens is the first one.
        head: Name of the map that scores all tokens, if the family has one.
        filler: Names of the dense map, the norm and the bias by which an encoder fills masks, if the folder has them.
        ignored: Ends of names that hold no weight of the model, such as masks.
    """

    model: str
    prefix: str
    options: Callable[[Config], dict[str, Any]]
    rules: Callable[[Config], list[Rule]]
    head: str | None = None
    filler: tuple[str, str, str] | None = None
    ignored: Sequence[str] = ()


def require(config: Config, **expected: Any) -> None:
    """Raise Unfit for an entry that is given and is not the expected value."""
    for name, value in expected.items():
        if name in config and config[name] != value:
            raise Unfit(f"{name}={config[name]}: our model has {value} alone")


def activation(config: Config, name: str) -> str:
    """Return our name of an activation; raise Unfit if there is none."""
    given = config.get(name)
    if given not in ACTIVATIONS:
        raise Unfit(f"{name}={given}: expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[given]


def number(config: Config, name: str, kind: type = int) -> Any:
    """Return a number of config.json above 0; raise UserError if it is none."""
    value: Any = config.get(name)
    if not isinstance(value, (int, kind)) or isinstance(value, bool) or value <= 0:
        raise UserError(f"{name}={value!r}: expected a number above 0")
    return value
