"""`seqtrain matrix`: which model does which task with which truncation (tbptt), and why others do not."""

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
        "Print every model with every task: the cuts of time (tbptt=) that train, or why none does.\n"
        "With --json each cell of model, task and tbptt, with its reason where it is refused.",
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
    """Return every cell of the matrix: a model, a task and a cut of time."""
    from seqtrain.training import compatibility
    from seqtrain.training.shipped import Cell, sources_hash

    # Kept, since nothing but our own files decides it, and to make all pairs takes half a minute.
    rows = cached_json(f"matrix {sources_hash()}", lambda: list(compatibility.cells()))
    return [Cell(*row) for row in rows]


def table(cells: list[Cell]) -> list[str]:
    """Return the matrix as a Markdown table, followed by the numbered reasons."""
    pairs: dict[str, dict[str, list[Cell]]] = {}  # the cells of a model and a task: one a cut of time
    for cell in cells:
        pairs.setdefault(cell.model, {}).setdefault(cell.task, []).append(cell)
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    reasons: dict[str, int] = {}
    rows = [["model", *tasks], ["---"] * (len(tasks) + 1)]
    for model, of_model in pairs.items():
        rows.append([model, *(_words(of_model[task], reasons) for task in tasks)])
    # Padded, so that the table can be read in the file, too.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]
    return [*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())]


def _words(cells: list[Cell], reasons: dict[str, int]) -> str:
    """Return the values of tbptt that train. If none does, return the number of the reason for the most fitting one."""
    trains = [cell.tbptt for cell in cells if cell.reason is None]
    if trains:
        return ", ".join(trains)
    # With whole examples it is refused for the pair alone, not for the cut.
    whole = next((cell for cell in cells if cell.tbptt == "whole"), cells[0])
    reason = (whole.reason or "").partition(", which model")[0]  # without the models that would do
    return f"no ({reasons.setdefault(reason, len(reasons) + 1)})"
