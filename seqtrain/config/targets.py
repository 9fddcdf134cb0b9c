"""Which targets a configuration may name: a file of settings must never choose what code runs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from seqtrain.config.signatures import defined_in
from seqtrain.config.trust import trusted
from seqtrain.errors import UserError, kind_of

CLASSES = (
    "seqtrain.models",
    "seqtrain.tasks",
    "seqtrain.data",
    "seqtrain.training.callbacks",
    "seqtrain.training.loggers",
    "seqtrain.training.optim",
    "torch.optim",
)
"""Packages whose classes may be targets, where they are defined there."""

FUNCTIONS = ("seqtrain.training.loggers.make",)
"""Modules whose functions may be targets too."""

NAMES = ("pytorch_lightning.callbacks.EarlyStopping",)
"""Single targets of other packages; never a whole third-party package, most of them hold a way to a shell."""

KINDS = {
    "task": "seqtrain.tasks.base.Task",
    "data": "seqtrain.data.sources.base.Source",
    "model": "seqtrain.models.base.SequenceModel",
    "tokenizer": "seqtrain.data.tokenizers.recipes.Recipe",
    "tbptt": "seqtrain.data.batching.plan.TBPTT",
    "optimizer": "torch.optim.optimizer.Optimizer",
    "callbacks": "pytorch_lightning.callbacks.callback.Callback",
}
"""What the target of a group must be: its class, or what that inherits from."""


def targets(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and node of everything that has a `_target_`."""
    if isinstance(node, dict) and "_target_" in node:
        yield path, node
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in children:
        yield from targets(value, f"{path}.{key}" if path else str(key))


def allowed(target: str) -> bool:
    """Whether a configuration may name this target; decided from names and sources, so nothing is imported."""
    return refusal(target) is None


def refusal(target: Any) -> str | None:
    """Why a target may not be named, with the remedy; None where it may."""
    if not isinstance(target, str):
        return "expected the dotted name of a class"
    if target in NAMES or _inside(target, trusted()):
        return None
    if not _inside(target, CLASSES):
        package = target.partition(".")[0]
        return f"not a target that may run; if you trust the code of {package}, add --trust {package}"
    home = defined_in(target)
    if home is None:
        return "no such class"
    module, is_class = home
    if not _inside(module, CLASSES):
        return f"defined in {module}, which may not run; name what {target.rpartition('.')[0]} itself defines"
    if not is_class and module not in FUNCTIONS:
        return "a function; a target is a class"
    return None


def resolve(target: Any, *, path: str = "") -> Any:
    """The class or function of this name, imported only if it may be named, and checked again once it is there.

    `path`: where the configuration names it; a group takes only what is of its kind.
    """
    reason = refusal(target)
    if reason:
        raise UserError(f"{target}: {reason}")
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise kind_of(error)(f"{target}: cannot be imported: {error}") from error
    at_home = inspect.isroutine(found) or inspect.isclass(found)
    if not at_home or not (target in NAMES or _inside(found.__module__, (*CLASSES, *trusted()))):
        raise UserError(f"{target}: not a class that its package defines; name it where it is defined")
    group, _, entry = path.partition(".")
    kind = KINDS.get(group) if entry.count(".") + bool(entry) == (group == "callbacks") else None
    if kind and kind not in (f"{base.__module__}.{base.__qualname__}" for base in getattr(found, "__mro__", ())):
        raise UserError(f"{target}: is no {kind.rpartition('.')[2]}, so it cannot be the {group}")
    return found


def whitelist() -> list[str]:
    """The same rule as patterns for Hydra's `instantiate`, which holds the line once more."""
    return [*(f"{package}.*" for package in (*CLASSES, *trusted())), *NAMES]


def _inside(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
