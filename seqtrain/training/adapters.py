"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): weights are frozen, and each matrix learns a small change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seqtrain.errors import UserError, did_you_mean, first_few
from seqtrain.models.base import SequenceModel
from seqtrain.training.optim.groups import embedding_ids
from seqtrain.training.transfer import freeze


class LowRank(nn.Module):
    """Change of a matrix with N rows and M columns: the product of two thin matrices, zero at first."""

    def __init__(self, weight: Float[Tensor, "N M"], rank: int, alpha: float) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.scale = alpha / rank
        self.down = nn.Parameter(weight.new_empty(rank, columns).uniform_(-(columns**-0.5), columns**-0.5))
        self.up = nn.Parameter(weight.new_zeros(rows, rank))

    def forward(self, weight: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
        return weight + self.scale * (self.up @ self.down)


class NewRows(nn.Module):
    """Trained rows at the end of an embedding: special tokens that the parent lacks. The other rows stay frozen."""

    def __init__(self, weight: Float[Tensor, "N M"], count: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(weight[len(weight) - count :].detach().clone())

    def forward(self, weight: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
        return torch.cat([weight[: len(weight) - len(self.rows)], self.rows])


def adapt(model: SequenceModel, config: DictConfig, new_rows: Mapping[str, int]) -> str:
    """Freeze a model and give its matrices adapters, in place. Its state dict then contains only what is trained.

    Args:
        model: Model with the weights that are adapted. Embeddings get no adapter.
        config: Config of the run, with the group `adapter`.
        new_rows: Number of rows at the end of a weight that the parent lacks, by name; they are trained.

    Returns:
        A line with the number of trained parameters.

    Raises:
        UserError: A target matches no matrix of the model, or the parent lacks a whole weight.
    """
    options, embeddings = config.adapter, embedding_ids(model)
    matrices = {}
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and id(weight) not in embeddings:
            matrices[name] = weight
    chosen = _matching(matrices, options.targets, "targets")
    freeze(model, ["all"])
    weights = dict(model.named_parameters())
    for name in _matching(weights, options.train, "train"):
        weights[name].requires_grad_()
    for name, count in new_rows.items():
        owner, _, own = name.rpartition(".")
        module = model.get_submodule(owner)
        weight = getattr(module, own)
        if count == len(weight):
            raise UserError(
                f"adapter=lora: init_from has no {name}, which would keep its random values; use the same model"
            )
        if not weight.requires_grad:  # else it is trained as a whole
            parametrize.register_parametrization(module, own, NewRows(weight, count))
    torch.manual_seed(config.seed)  # so that adapters do not depend on earlier random numbers
    for name in chosen:
        owner, _, own = name.rpartition(".")
        change = LowRank(matrices[name], options.rank, options.alpha)
        parametrize.register_parametrization(model.get_submodule(owner), own, change)
    # Read again, because the adapters have changed the names of the weights.
    weights = dict(model.named_parameters(remove_duplicate=False))
    frozen = {name: weight for name, weight in weights.items() if not weight.requires_grad}
    _leave_out(model, frozen)
    freeze(model, config.freeze)
    total = sum(weight.numel() for weight in model.parameters())
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    share = f"{trained:,} parameters of the model ({trained / total:.1%})"
    return f"adapter: {len(chosen)} matrices have adapters; {share} and the task's head are trained"


def _matching(weights: Mapping[str, Tensor], parts: Sequence[str], option: str) -> list[str]:
    """Return the names of weights that contain one of `parts` as whole words between dots; `all` matches all."""
    if option == "targets" and not parts:
        raise UserError("adapter.targets=[]: names no part of the model; use [all] for every part")
    found: dict[str, None] = {}
    for part in parts:
        names = [name for name in weights if part == "all" or f".{part}." in f".{name}."]
        if not names:
            known = dict.fromkeys(word for name in weights for word in name.split(".") if word != "weight")
            raise UserError(
                f"adapter.{option}={part}: no such part{did_you_mean(part, known)}; parts are {first_few(known)}"
            )
        found |= dict.fromkeys(names)
    return list(found)


def _leave_out(model: SequenceModel, frozen: Mapping[str, Tensor]) -> None:
    """Exclude these weights from the model's state dict, and make it load a state dict without them."""

    def saved(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        for name in frozen:
            state.pop(prefix + name, None)

    def loaded(module: nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
        for name, weight in frozen.items():
            state.setdefault(prefix + name, weight.detach())

    model.hooks_of_adapters = [  # type: ignore[assignment]
        model.register_state_dict_post_hook(saved),
        model.register_load_state_dict_pre_hook(loaded),
    ]


def merge(model: SequenceModel) -> None:
    """Add each adapter's change to its matrix, in place, and remove the adapters."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):  # type: ignore[union-attr,arg-type]
                parametrize.remove_parametrizations(module, name)
    for hook in model.hooks_of_adapters:  # type: ignore[union-attr]
        hook.remove()  # type: ignore[union-attr]


def check_adapter(model: SequenceModel, config: DictConfig) -> None:
    """Raise UserError, with a line for each fault, if adapters cannot be combined with the rest of a config.

    Args:
        model: Model of the config, on the meta device; the check adds adapters to it.
        config: Config of the run, with the group `adapter`.
    """
    lines = []
    if config.init_from is None:
        lines.append("adapter=lora: needs trained weights to adapt; add init_from=RUN, or leave the adapter out")
    elif not isinstance(config.init_from, str):
        lines.append("adapter=lora: adapts the weights of one run, but init_from names two")
    if config.trainer.compile != "none":
        lines.append(f"trainer.compile={config.trainer.compile}: cannot be combined with adapter=lora; leave one out")
    if config.trainer.strategy == "fsdp":
        lines.append("trainer.strategy=fsdp: cannot be combined with adapter=lora, which has little to shard; use ddp")
    if lines:
        raise UserError(*lines)
    adapt(model, config, {})
