"""The targets that a configuration may name: a config file must not be able to run arbitrary code."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from seqtrain.config.nodes import below
from seqtrain.config.signatures import defined_in
from seqtrain.config.trust import trusted
from seqtrain.errors import UserError, kind_of

# Packages whose own classes may be targets. Names that such a module merely imports, such as `os` or another package's
# class, are not allowed.
CLASSES = (
    "seqtrain.models",
    "seqtrain.tasks",
    "seqtrain.data",
    "seqtrain.training.callbacks",
    "seqtrain.training.loggers",
    "seqtrain.training.optim",
    "torch.optim",
)

# Single targets of third-party packages; never a whole package, because most contain a way to a shell.
# Lightning's callbacks that monitor or stop training; none that changes updates or weights, or writes files.
LIGHTNING = ("DeviceStatsMonitor", "EarlyStopping", "LearningRateMonitor", "ModelSummary", "RichModelSummary")
NAMES = tuple(f"pytorch_lightning.callbacks.{name}" for name in LIGHTNING)

# Base class that the target of each group must have. Given by name, because importing the modules that define them is
# slow.
KINDS = {
    "task": "seqtrain.tasks.base.Task",
    "data": "seqtrain.data.sources.base.Source",
    "model": "seqtrain.models.base.SequenceModel",
    "tokenizer": "seqtrain.data.tokenizers.recipes.Recipe",
    "tbptt": "seqtrain.data.batching.plan.TBPTT",
    "optimizer": "torch.optim.optimizer.Optimizer",
    "callbacks": "pytorch_lightning.callbacks.callback.Callback",
}


def targets(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and node of everything that has a `_target_`."""
    if isinstance(node, list):
        children = enumerate(node)
    elif isinstance(node, dict):
        children = node.items()
        if "_target_" in node:
            yield path, node
    else:
        return
    for key, value in children:
        yield from targets(value, below(path, key))


def refusal(target: Any) -> str | None:
    """Return why a target is not allowed, with a remedy; None if it is.

    Uses names and source files only; imports nothing.
    """
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
        return f"defined in {module}, which may not run; name a class that {target.rpartition('.')[0]} itself defines"
    if not is_class:
        return "a function; a target is a class"
    return None


def resolve(target: Any, *, path: str = "") -> Any:
    """Return the class or function of this name. Import it only if it is allowed, then check the imported object.

    Args:
        target: the dotted name.
        path: config path of the node; the target of a group must have that group's base class.
    """
    reason = refusal(target)
    if reason:
        raise UserError(f"{target}: {reason}")
    module, _, name = target.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise kind_of(error)(f"{target}: cannot be imported: {error}") from error
    # The check so far read source files; the imported name may be bound to another object.
    defined = inspect.isroutine(made) or inspect.isclass(made)
    if not defined or not (target in NAMES or _inside(made.__module__, (*CLASSES, *trusted()))):
        raise UserError(f"{target}: not a class that its package defines; name it where it is defined")
    kind = _kind_at(path)
    if kind and kind not in map(_full_name, getattr(made, "__mro__", ())):
        group = path.partition(".")[0]
        raise UserError(f"{target}: not a {kind.rpartition('.')[2]}; the target of {group} must be one")
    return made


def _kind_at(path: str) -> str | None:
    """Return the base class required of a target at this path; None if any class is valid, as in nested targets."""
    group, *entries = path.split(".")
    depth = 1 if group == "callbacks" else 0  # a callback is an entry of its group; other targets are the group itself
    return KINDS.get(group) if len(entries) == depth else None


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def whitelist() -> list[str]:
    """Return the allowed targets as patterns for Hydra's `instantiate`, which checks them again."""
    return [*(f"{package}.*" for package in (*CLASSES, *trusted())), *NAMES]


def _inside(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
