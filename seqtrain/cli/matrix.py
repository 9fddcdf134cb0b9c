"""`seqtrain matrix`: which model does which task, with which cut of time, and why another does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from seqtrain.cli.arguments import Parser

if TYPE_CHECKING:
    from seqtrain.training.compatibility import Cell


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "matrix",
        "Print every model with every task: the cuts of time (tbptt=) that train, or why none does.\n"
        "With --json each cell of model, task and tbptt, with its reason where it is refused.",
        "seqtrain matrix",
    )
    options = parser.parse_args(argv)

    from seqtrain.training.compatibility import cells

    found = list(cells())
    if options.json:
        for cell in found:
            print(json.dumps(cell._asdict()))
    else:
        print("\n".join(table(found)))
    return 0


def table(found: list[Cell]) -> list[str]:
    """The matrix as a table in Markdown, and below it the reasons by number."""
    models, tasks = (list(dict.fromkeys(getattr(cell, part) for cell in found)) for part in ("model", "task"))
    reasons: dict[str, int] = {}
    rows = [["model", *tasks], ["---"] * (len(tasks) + 1)]
    for model in models:
        rows.append([model])
        for task in tasks:
            here = [cell for cell in found if (cell.model, cell.task) == (model, task)]
            rows[-1].append(_words(here, reasons))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]
    return [*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())]


def _words(cells: list[Cell], reasons: dict[str, int]) -> str:
    """The cuts that train; where none does, the number of the reason that the most fitting cut is refused for."""
    trains = [cell.tbptt for cell in cells if cell.reason is None]
    if trains:
        return ", ".join(trains)
    whole = min(cells, key=lambda cell: cell.tbptt != "whole")  # refused for the pair alone, not for the cut
    name = (whole.reason or "").partition(", which model")[0]
    return f"no ({reasons.setdefault(name, len(reasons) + 1)})"
