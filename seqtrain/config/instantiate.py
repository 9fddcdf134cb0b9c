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

NAMING = ("model", "task")  # groups whose constructors receive arguments that are known only at run time


def plain(node: DictConfig) -> dict[str, Any]:
    """Return a config node as plain values, interpolations resolved."""
    return cast(dict[str, Any], OmegaConf.to_container(node, resolve=True))


def source_of(data: DictConfig) -> Any:
    """Return the source that the group `data` describes, without the options of batching."""
    options = plain(data)
    for key in own_options("data").keys() & options.keys():
        del options[key]
    return make(OmegaConf.create({"data": options}).data)  # nested in `data`, for the paths in messages


def make(node: DictConfig, **given: Any) -> Any:
    """Instantiate a config node. Of the run-time arguments `given`, pass those that its target takes."""
    options: dict[str, Any] = {**plain(node), "_convert_": "all"}
    options.pop("_recommend_", None)  # defaults for other groups, not an argument of the model
    partial = options.pop("_partial_", False)
    path = node._get_full_key(None)  # OmegaConf has no public name for it
    if path == "model":
        for key in own_options(path):
            options.pop(key, None)  # arguments of the front end
    for inner_path, inner in targets(options, path):
        resolve(inner["_target_"], path=inner_path)  # Hydra's own check is by name only
    target = resolve(options["_target_"])
    parameters = inspect.signature(target).parameters
    free = parameters.keys() - options.keys()  # options of the config take precedence
    _check_named(path or target.__name__, target, parameters, given)
    # In two steps, because Hydra would merge the arguments, such as a module, into a config.
    deferred = instantiate({**options, "_partial_": True}, _execution_whitelist_=whitelist())
    if partial:
        return deferred
    try:
        return deferred(**{name: given[name] for name in given.keys() & free})
    except ValueError as error:
        where = path or target.__name__
        # Our classes begin a message with the option, so `num_heads=3: ...` of model becomes `model.num_heads=3: ...`.
        if str(error).partition("=")[0] in options:
            raise UserError(f"{where}.{error}") from None
        raise UserError(f"{where}: {error}") from None


def _check_named(path: str, target: Any, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> None:
    """Raise UserError if a model or task has only **options in place of all run-time arguments."""
    collected = [name for name, each in parameters.items() if each.kind is inspect.Parameter.VAR_KEYWORD]
    # Only named arguments are passed: otherwise each argument that we add later would break third-party classes.
    if collected and given and path in NAMING and given.keys().isdisjoint(parameters):
        raise UserError(
            f"{path}: the constructor of {target.__name__} takes **{collected[0]}; name the arguments that it needs "
            f"from seqtrain ({first_few(given)})"
        )
