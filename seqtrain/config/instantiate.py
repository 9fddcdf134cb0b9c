"""Creation of objects from the nodes of a config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seqtrain.config.groups import own_options
from seqtrain.config.targets import resolve, targets, whitelist
from seqtrain.errors import UserError, first_few

NAMING = ("model", "task")  # whose constructors are given what is known only at run time


def plain(node: DictConfig) -> dict[str, Any]:
    """Return a config node as plain values, interpolations resolved."""
    return cast(dict[str, Any], OmegaConf.to_container(node, resolve=True))


def source_of(data: DictConfig) -> Any:
    """Return the source that the group `data` describes, without its options of lanes and batches."""
    options = plain(data)
    for key in own_options("data").keys() & options.keys():
        del options[key]
    return make(OmegaConf.create({"data": options}).data)  # below `data`, as messages name it


def make(node: DictConfig, **given: Any) -> Any:
    """Return the object of a config node; it gets those of `given`, known only at run time, that it takes."""
    options: dict[str, Any] = {**plain(node), "_convert_": "all"}
    options.pop("_recommend_", None)  # for the optimizer, not for the model that it stands beside
    partial = options.pop("_partial_", False)
    path = node._get_full_key(None)  # OmegaConf has no public name for it
    if path == "model":
        for key in own_options(path):
            options.pop(key, None)  # for the front end that it is given
    for inner_path, inner in targets(options, path):
        resolve(inner["_target_"], path=inner_path)  # Hydra's own rule is about names only
    target = resolve(options["_target_"])
    parameters = inspect.signature(target).parameters
    free = parameters.keys() - options.keys()  # an option keeps what the config says
    _check_named(path or target.__name__, target, parameters, given)
    # In two steps: Hydra would merge what is handed over, such as a module, into a config of its own.
    deferred = instantiate({**options, "_partial_": True}, _execution_whitelist_=whitelist())
    if partial:
        return deferred
    try:
        return deferred(**{name: given[name] for name in given.keys() & free})
    except ValueError as error:
        where = path or target.__name__
        # Our classes begin the message with the option: `num_heads=3: ...` of model becomes `model.num_heads=3: ...`.
        if str(error).partition("=")[0] in options:
            raise UserError(f"{where}.{error}") from None
        raise UserError(f"{where}: {error}") from None


def _check_named(path: str, target: Any, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> None:
    """Raise UserError if a model or a task hides behind **options whether its constructor takes what it is given."""
    collected = [name for name, each in parameters.items() if each.kind is inspect.Parameter.VAR_KEYWORD]
    # What it does not name it does not get: handed over unasked, each thing we add would break somebody's class.
    if collected and given and path in NAMING and given.keys().isdisjoint(parameters):
        raise UserError(
            f"{path}: the constructor of {target.__name__} collects its options in **{collected[0]}; name what it is "
            f"to be given ({first_few(given)})"
        )
