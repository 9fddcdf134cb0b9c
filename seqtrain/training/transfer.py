"""Weights of one run as the start of another: pretrain, then fine-tune."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqtrain.errors import UserError, did_you_mean
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.base import Task

MAX_MODULES = 6  # named in a line about weights


def copy_matching(
    model: SequenceModel,
    task: Task | None,
    weights: dict[str, Tensor],
    *,
    same_task: bool,
    say: Callable[[str], None],
    whose: str = "",
) -> dict[str, int]:
    """Copy the weights of another run that fit into model and task, in place, and log a line.

    Args:
        model: Model. If its embedding has more or fewer special tokens than the origin's, the rows of both are copied.
        task: Task. Its head is copied only if the task is the same. None: only the model is copied.
        weights: Weights as in a checkpoint's state_dict, named `model.*` and `task.*`.
        same_task: True if they were trained for a task of this class.
        say: Called with a line: what was loaded, what is new, and what was left behind.
        whose: ` of RUN`, in that line, if there is more than one run.

    Returns:
        Number of rows of each weight of the model that keep their initial values, by its name: the last rows, or all.

    Raises:
        UserError: Weights of the model have another shape, or most are missing.
    """
    own = {f"model.{name}": value for name, value in model.state_dict().items()}
    if task is not None:
        own |= {f"task.{name}": value for name, value in task.state_dict().items()}
    loaded, new, gone, faults = [], [], [], []
    first: dict[int, str] = {}  # first name of a shared weight, by its memory
    new_rows: dict[str, int] = {}
    for name, value in own.items():
        of_task = name.startswith("task.")
        given = weights.get(name)
        if given is None or (of_task and not same_task):
            new.append(name)
            if not of_task:
                new_rows[name.removeprefix("model.")] = len(value)
        elif given.shape == value.shape:
            other = first.setdefault(value.data_ptr(), name) if value.numel() else name
            if not torch.equal(weights[other], given):
                faults.append(f"{other} and {name} differ there, but are one weight here")
            loaded.append(name)
            value.copy_(given)
        elif _has_other_specials(name, value, given):
            loaded.append(name)
            more = len(value) - len(given)
            (new if more > 0 else gone).append(f"{abs(more)} special tokens of {name}")
            value[: len(given)].copy_(given[: len(value)])  # special tokens come after all others
            if more > 0:
                new_rows[name.removeprefix("model.")] = more
        elif of_task:
            new.append(name)
        else:
            faults.append(f"{name} is {_shape(given)} there, but {_shape(value)} here")
    if faults:
        raise UserError(_incompatibility(model, weights, faults))
    # Embeddings do not count: they fit between models that have nothing else in common.
    inner = {name for name in own if name.startswith("model.") and "embed." not in name}
    known = len(inner.intersection(loaded))
    if not known:
        raise UserError("init_from: that run's model has no weight in common with this model; use the same model")
    if 2 * known < len(inner):
        raise UserError(
            f"init_from: that run has only {known} of this model's {len(inner)} weights; use the same model"
        )
    left = [name for name in weights if name not in own or name in new] + gone
    say(f"init_from: loaded {_summary(loaded)}{whose}; new: {_summary(new)}; left behind: {_summary(left)}")
    return new_rows


def _has_other_specials(name: str, value: Tensor, given: Tensor) -> bool:
    """Return True if an embedding differs from the origin's only by one or two special tokens more or fewer."""
    return "embed." in name and given.shape[1:] == value.shape[1:] and 0 < abs(len(value) - len(given)) < 3


def _incompatibility(model: SequenceModel, weights: dict[str, Tensor], faults: Sequence[str]) -> str:
    """Return one line for weights of other shapes: a different width, if that is the cause, or the first shape."""
    # A width is in every shape, so naming it explains more than naming the first different shape.
    embedding = weights.get("model.embed.projection", weights.get("model.embed.weight"))
    if embedding is not None and "model.embed.projection" in weights:
        embedding = embedding.T  # one row per unit of the model's width
    if embedding is not None and embedding.shape[-1] != model.dim:
        dim = embedding.shape[-1]
        return f"init_from: model.dim={model.dim} here, but that run's model has {dim}; set model.dim={dim}"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"init_from: {faults[0]}{more}; set the same model options"


def freeze(model: SequenceModel, names: Sequence[str]) -> int:
    """Freeze every weight of the model whose name begins with one of `names`; return how many numbers.

    Names are those of modules, with dots: embed, layer, blocks.0; `all` is the whole model.
    """
    count = 0
    weights = dict(model.named_parameters())
    for wanted in names:
        matching = [name for name in weights if wanted == "all" or f"{name}.".startswith(f"{wanted}.")]
        if not matching:
            known = sorted({name.split(".")[0] for name in weights})
            raise UserError(f"freeze={wanted}: the model has no such part{did_you_mean(wanted, known)}")
        for name in matching:
            weight = weights[name]
            if weight.requires_grad:  # otherwise frozen by an earlier name
                count += weight.numel()
            weight.requires_grad_(False)
    return count


def _summary(names: Sequence[str]) -> str:
    """Return how many names there are, and the modules that they belong to."""
    if not names:
        return "nothing"
    modules = list(dict.fromkeys(map(_module_of, names)))
    if len(modules) > MAX_MODULES:
        modules[MAX_MODULES:] = ["..."]
    return f"{len(names)} ({', '.join(modules)})"


def _module_of(name: str) -> str:
    """Return the module of model or task that a weight belongs to: `model.embed`."""
    if " " in name:  # words about special tokens
        return name
    return ".".join(name.split(".")[:2])


def _shape(value: torch.Tensor) -> str:
    return "x".join(map(str, value.shape))
