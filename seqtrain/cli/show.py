"""`seqtrain show`: the layers of a model, with shapes and parameters."""

from __future__ import annotations

import json

from seqtrain.analysis.profile_report import SIZE
from seqtrain.cli.arguments import Parser, bounded


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    words = "Print the layers of a model, the shape that each gives and its weights; then its state."
    parser = Parser("show", words, "seqtrain show model=gpt model.num_layers=2")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_config_dir()
    parser.add_argument("--length", type=bounded(SIZE), default=16, metavar="T", help="positions that are read")
    options = parser.parse_intermixed_args(argv)

    from seqtrain.analysis.diagram import Layer, diagram, shape

    layers, state = diagram(options.overrides, options.length, options.config_dir)
    if options.json:
        print("\n".join(json.dumps(layer._asdict()) for layer in layers))
        return 0
    table = [Layer._fields, *((*layer[:-1], f"{layer.parameters:,}") for layer in layers)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    carried = ", ".join(f"{name} {shape(tensor)}" for name, tensor in state.items())
    print(f"parameters: {sum(layer.parameters for layer in layers):,}")
    print(f"state after {options.length} positions: {carried or 'none'}")
    return 0
