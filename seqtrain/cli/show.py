"""`seqtrain show`: the layers of a model, with shapes and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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
    parser.add_argument("--mermaid", action="store_true", help="print a drawing: a flow chart in Mermaid's language")
    options = parser.parse_intermixed_args(argv)

    if options.json and options.mermaid:
        raise UserError("--mermaid: has no effect with --json; leave one of them out")
    layers, output, state = diagram(options.overrides, options.length, options.config_dir)
    if options.json:
        print("\n".join(json.dumps(layer._asdict()) for layer in layers))
        print(json.dumps({"state": {name: shape(tensor) for name, tensor in state.items()}}))
        return 0
    if options.mermaid:
        print("\n".join(flow_chart(layers, output)))
        return 0
    table = [Layer._fields[:-1], *((*layer[:-2], f"{layer.parameters:,}") for layer in layers)]
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
    reads: list[str]  # layers whose output it reads, without another layer between; `input` is the input


class Diagram(NamedTuple):
    """The layers of a model, and what it returns."""

    layers: list[Layer]
    output: list[str]  # layers that its hidden states come from, without another layer between
    state: State


def diagram(overrides: Sequence[str], length: int, config_dirs: Sequence[Path] = ()) -> Diagram:
    """Run a model on an input of `length` positions; return its layers, their connections and its final state."""
    import torch
    from torch import Tensor

    from seqtrain.config import check
    from seqtrain.models.base import read_blank
    from seqtrain.training.model_and_task import make_model

    model = make_model(check.compose(list(overrides), config_dirs).config, VOCAB_SIZE).eval()
    if model.max_length is not None and length > model.max_length:
        raise UserError(f"--length {length}: the model reads at most model.max_length={model.max_length}; give less")
    names = {module: name or "model" for name, module in model.named_modules()}
    gives: dict[nn.Module, list[str]] = {}  # output shapes of each call; modules in the order of their first call
    reads: dict[nn.Module, dict[str, None]] = {}
    made: dict[Any, str] = {}  # the layer whose output a node of the graph of gradients is

    def note(module: nn.Module, _: Any, output: Any) -> None:
        # A recurrent layer returns its output, then its state.
        outputs = [output] if isinstance(output, Tensor) else list(output)
        gives.setdefault(module, []).append(shape(outputs[0]))
        if not list(module.parameters(recurse=False)):
            return
        reads.setdefault(module, {}).update(origins(outputs, made))
        made.update((each.grad_fn, names[module]) for each in outputs if isinstance(each, Tensor))

    for module in model.modules():
        module.register_forward_hook(note)
    with torch.enable_grad():
        hidden, state = read_blank(model, 1, length)
    layers = []
    for module in [*gives, *(module for module in names if module not in gives)]:
        if own := list(module.parameters(recurse=False)):
            calls = gives.get(module, [""])
            given = calls[0] if len(calls) == 1 else f"{calls[0]}, {len(calls)} times"
            count = sum(map(Tensor.numel, own))
            weights = ", ".join(map(shape, own))
            layers.append(
                Layer(names[module], type(module).__name__, given, weights, count, list(reads.get(module, ())))
            )
    return Diagram(layers, list(origins([hidden], made)), state)


def origins(tensors: Sequence[Any], made: Mapping[Any, str]) -> dict[str, None]:
    """Return the layers that made tensors, as keys; `made` has the layer of each node of the graph of gradients."""
    waiting, seen, found = [each.grad_fn for each in tensors if getattr(each, "grad_fn", None)], set(), {}
    while waiting:
        node = waiting.pop()
        if node in made:
            found[made[node]] = None
        elif node not in seen:
            seen.add(node)
            waiting += [before for before, _ in node.next_functions if before is not None]
    return found or {"input": None}


def flow_chart(layers: Sequence[Layer], output: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a drawing in Mermaid's language: a box for each layer, and arrows along the data."""
    places = {layer.name: f"n{place}" for place, layer in enumerate(layers)}
    yield "flowchart TD"
    yield "  input([input])"
    for layer in layers:
        lines = (layer.name, f"{layer.kind}: {layer.gives}", f"{layer.parameters:,} parameters")
        yield f'  {places[layer.name]}["{"<br>".join(lines)}"]'
    yield "  output([hidden states])"
    for layer in layers:
        yield from (f"  {places.get(name, name)} --> {places[layer.name]}" for name in layer.reads)
    yield from (f"  {places.get(name, name)} --> output" for name in output)


def shape(tensor: Tensor) -> str:
    """Format the shape of a tensor, such as `1 x 8 x 128`."""
    return " x ".join(map(str, tensor.shape))
