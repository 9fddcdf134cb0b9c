"""`seqtrain show`: the layers of a model, with shapes and parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqtrain.analysis.profile_report import SIZE, VOCAB_SIZE
from seqtrain.cli.arguments import Parser, bounded
from seqtrain.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from seqtrain.models.base import State


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    words = (
        "Print the layers of a model, each with its output shape and its weights; then the state.\n"
        f"The vocabulary has {VOCAB_SIZE} tokens, whatever the tokenizer; the head of the task is not shown."
    )
    parser = Parser("show", words, "seqtrain show model=gpt model.num_layers=2")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_config_dir()
    parser.add_argument("--length", type=bounded(SIZE), default=16, metavar="T", help="length of the input")
    options = parser.parse_intermixed_args(argv)

    layers, state = diagram(options.overrides, options.length, options.config_dir)
    if options.json:
        print("\n".join(json.dumps(layer._asdict()) for layer in layers))
        print(json.dumps({"state": {name: shape(tensor) for name, tensor in state.items()}}))
        return 0
    table = [Layer._fields, *((*layer[:-1], f"{layer.parameters:,}") for layer in layers)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    carried = ", ".join(f"{name} {shape(tensor)}" for name, tensor in state.items())
    print(f"parameters: {sum(layer.parameters for layer in layers):,}")
    print(f"state after {options.length} positions: {carried or 'none'}")
    return 0


class Layer(NamedTuple):
    """A module that directly owns weights."""

    name: str
    kind: str
    gives: str  # shape of its output, and how often it is called if more than once; empty if never as a module
    weights: str  # their shapes
    parameters: int


def diagram(overrides: Sequence[str], length: int, config_dirs: Sequence[Path] = ()) -> tuple[list[Layer], State]:
    """Run a model on an input of `length` positions; return its layers and its final state."""
    from torch import Tensor

    from seqtrain.config import check
    from seqtrain.models.base import read_blank
    from seqtrain.training.model_and_task import make_model

    model = make_model(check.compose(list(overrides), config_dirs).config, VOCAB_SIZE).eval()
    if model.max_length is not None and length > model.max_length:
        raise UserError(f"--length {length}: the model reads at most model.max_length={model.max_length}; give less")
    gives: dict[nn.Module, list[str]] = {}  # output shapes of each call; modules in the order of their first call

    def note(module: nn.Module, _: Any, output: Any) -> None:
        # A recurrent layer returns its output, then its state.
        gives.setdefault(module, []).append(shape(output if isinstance(output, Tensor) else output[0]))

    for module in model.modules():
        module.register_forward_hook(note)
    _, state = read_blank(model, 1, length)
    names = {module: name for name, module in model.named_modules()}
    layers = []
    for module in [*gives, *(module for module in names if module not in gives)]:
        if own := list(module.parameters(recurse=False)):
            calls = gives.get(module, [""])
            given = calls[0] if len(calls) == 1 else f"{calls[0]}, {len(calls)} times"
            count = sum(map(Tensor.numel, own))
            layers.append(Layer(names[module], type(module).__name__, given, ", ".join(map(shape, own)), count))
    return layers, state


def shape(tensor: Tensor) -> str:
    """Format the shape of a tensor, such as `1 x 8 x 128`."""
    return " x ".join(map(str, tensor.shape))
