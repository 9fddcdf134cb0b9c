"""`seqtrain matrix`: which model supports which task with which truncation (tbptt), and why others do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from seqtrain.cli.arguments import Parser
from seqtrain.data.cache import cached_json

if TYPE_CHECKING:
    from seqtrain.training.shipped import Cell


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "matrix",
        "Print for every model and task the truncations (tbptt=) that work, or the reason why none does.\n"
        "With --json, print every cell of model, task and tbptt, with the reason if it is refused.",
        "seqtrain matrix",
    )
    options = parser.parse_args(argv)
    matrix = cells()
    if options.json:
        for cell in matrix:
            print(json.dumps(cell._asdict()))
    else:
        print("\n".join(table(matrix)))
    return 0


def cells() -> list[Cell]:
    """Return every cell of the matrix: a model, a task and a truncation."""
    from seqtrain.training import compatibility
    from seqtrain.training.shipped import Cell, sources_hash

    # Cached: making all pairs takes half a minute, and the result depends only on our own files.
    rows = cached_json(f"matrix {sources_hash()}", lambda: list(compatibility.cells()))
    return [Cell(*row) for row in rows]


def table(cells: list[Cell]) -> list[str]:
    """Return the matrix as a Markdown table, followed by the numbered reasons."""
    pairs: dict[str, dict[str, list[Cell]]] = {}  # the cells of a model and a task: one per truncation
    for cell in cells:
        pairs.setdefault(cell.model, {}).setdefault(cell.task, []).append(cell)
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    reasons: dict[str, int] = {}
    rows = [["model", *tasks], ["---"] * (len(tasks) + 1)]
    for model, of_model in pairs.items():
        rows.append([model, *(_words(of_model[task], reasons) for task in tasks)])
    # Padded, so that the Markdown source is readable, too.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]
    return [*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())]


def _words(cells: list[Cell], reasons: dict[str, int]) -> str:
    """Return the values of tbptt that work; if none does, the number of the reason for the most suitable one."""
    trains = [cell.tbptt for cell in cells if cell.reason is None]
    if trains:
        return ", ".join(trains)
    # With whole examples, the reason is the pair of model and task, not the truncation.
    whole = next((cell for cell in cells if cell.tbptt == "whole"), cells[0])
    reason = (whole.reason or "").partition(", which model")[0]  # without the list of models that would work
    return f"no ({reasons.setdefault(reason, len(reasons) + 1)})"
