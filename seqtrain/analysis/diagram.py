"""The layers of a model in order: the shape that each gives, its weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from seqtrain.analysis.profile_report import VOCAB_SIZE
from seqtrain.config import check
from seqtrain.errors import UserError
from seqtrain.models.base import State, read_blank
from seqtrain.training.model_and_task import make_model


class Layer(NamedTuple):
    """A module with weights of its own."""

    name: str
    kind: str
    gives: str  # shape of its output; empty if it is not called as a module
    weights: str  # their shapes
    parameters: int


def diagram(overrides: Sequence[str], length: int, config_dirs: Sequence[Path] = ()) -> tuple[list[Layer], State]:
    """Let a model read an input of `length` positions; return its layers, and the state that it leaves."""
    model = make_model(check.compose(list(overrides), config_dirs).config, VOCAB_SIZE).eval()
    if model.max_length is not None and length > model.max_length:
        raise UserError(f"--length {length}: the model reads at most model.max_length={model.max_length}; give less")
    gives: dict[nn.Module, str] = {}

    def note(module: nn.Module, _: Any, output: Any) -> None:
        # A recurrent layer gives its output, then its state.
        gives[module] = shape(output if isinstance(output, Tensor) else output[0])

    for module in model.modules():
        module.register_forward_hook(note)
    _, state = read_blank(model, 1, length)
    owners = ((name, module, list(module.parameters(recurse=False))) for name, module in model.named_modules())
    return [
        Layer(name, type(of).__name__, gives.get(of, ""), ", ".join(map(shape, own)), sum(map(Tensor.numel, own)))
        for name, of, own in owners
        if own
    ], state


def shape(tensor: Tensor) -> str:
    """Format the shape of a tensor, such as `1 x 8 x 128`."""
    return " x ".join(map(str, tensor.shape))
