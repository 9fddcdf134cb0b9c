"""The layers of a model in order: the shape that each gives, its weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqtrain.analysis.profile_report import VOCAB_SIZE
from seqtrain.config import check
from seqtrain.models.base import Capability, State, blank_input
from seqtrain.training.model_and_task import make_model


class Layer(NamedTuple):
    """A module with weights of its own."""

    name: str
    kind: str
    gives: str  # shape of its output; empty if it is not called as a module
    weights: str  # their shapes
    parameters: int


@torch.no_grad()
def diagram(overrides: Sequence[str], length: int, config_dirs: Sequence[Path] = ()) -> tuple[list[Layer], State]:
    """Let a model read an input of `length` positions; return its layers, and the state that it leaves."""
    model = make_model(check.compose(list(overrides), config_dirs).config, VOCAB_SIZE).eval()
    gives: dict[nn.Module, str] = {}

    def note(module: nn.Module, _: Any, output: Any) -> None:
        while not isinstance(output, Tensor):  # a recurrent layer gives its output, then its state
            output = output[0]
        gives[module] = shape(output)

    for module in model.modules():
        module.register_forward_hook(note)
    inputs = blank_input(model, 1, length)
    _, state = model(inputs, None if Capability.UNCONDITIONAL in model.capabilities else model.begin(inputs))
    layers = []
    for name, module in model.named_modules():
        if own := list(module.parameters(recurse=False)):
            size = sum(weight.numel() for weight in own)
            layers.append(Layer(name, type(module).__name__, gives.get(module, ""), ", ".join(map(shape, own)), size))
    return layers, state


def shape(tensor: Tensor) -> str:
    """Format the shape of a tensor, such as `1 x 8 x 128`."""
    return " x ".join(map(str, tensor.shape))
