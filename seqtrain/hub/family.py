"""A family of published models: the mapping of its config.json and weights to our options and weights."""

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
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
"""Names of our activations in config.json."""


class Unfit(Exception):
    """A model of a known family has an option that our model lacks; the message says which."""


@dataclass(frozen=True)
class Family:
    """A `model_type` of config.json.

    Args:
        model: Our model.
        prefix: Prefix of the names of weights, unless the folder contains the bare model.
        options: Returns the options of our model.
        rules: Returns the rules for the weights; the first one is for the token embedding.
        head: Name of the map that scores all tokens, if the family has one.
        filler: Names of the dense map, the norm and the bias of an encoder's masked-LM head, if the folder has them.
        ignored: Suffixes of names that are not weights of the model, such as masks.
    """

    model: str
    prefix: str
    options: Callable[[Config], dict[str, Any]]
    rules: Callable[[Config], list[Rule]]
    head: str | None = None
    filler: tuple[str, str, str] | None = None
    ignored: Sequence[str] = ()


def require(config: Config, **expected: Any) -> None:
    """Raise Unfit if an entry is given with another value than expected."""
    for name, value in expected.items():
        if name in config and config[name] != value:
            raise Unfit(f"{name}={config[name]}: seqtrain supports only {value}")


def activation(config: Config, name: str) -> str:
    """Return our name of an activation; raise Unfit if it is not supported."""
    given = config.get(name)
    if given not in ACTIVATIONS:
        raise Unfit(f"{name}={given}: expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[given]


def number(config: Config, name: str, kind: type = int) -> Any:
    """Return a number above 0 from config.json; raise UserError if the entry is not one."""
    value: Any = config.get(name)
    if not isinstance(value, (int, kind)) or isinstance(value, bool) or value <= 0:
        raise UserError(f"{name}={value!r}: expected a number above 0")
    return value
