"""`seqtrain matrix`: which model does which task with which truncation (tbptt), and why others do not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.cli.arguments import Parser
from seqtrain.data.cache import cached_json
from seqtrain.errors import UserError
from seqtrain.files import atomic

if TYPE_CHECKING:
    from seqtrain.training.shipped import Cell

# A line of a YAML file that sets an option, with the comment behind it.
OPTION = re.compile(r"(?P<name>\w+): (?P<default>.*?)(?: +# (?P<meaning>.*))?")
# A default that data or task may recommend another one for.
RECOMMENDED = re.compile(r"(\$\{oc\.select:(data|task)\._recommend_\.\w+,)+(?P<default>[^}]*)\}+")


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "matrix",
        "Print every model with every task: the cuts of time (tbptt=) that train, or why none does.\n"
        "With --json each cell of model, task and tbptt, with its reason where it is refused.",
        "seqtrain matrix",
    )
    parser.add_argument(
        "--markdown", metavar="FILE", help="write it, and the options of every model, between the marks of this page"
    )
    options = parser.parse_args(argv)

    from seqtrain.training.shipped import Cell, sources_hash

    # Kept, since nothing but our own files decides it, and to make all pairs takes half a minute.
    matrix = [Cell(*row) for row in cached_json(f"matrix {sources_hash()}", _cells)]
    if options.markdown:
        write_page(Path(options.markdown), {"models": models(), "matrix": table(matrix)})
    elif options.json:
        for cell in matrix:
            print(json.dumps(cell._asdict()))
    else:
        print("\n".join(table(matrix)))
    return 0


def _cells() -> list[Cell]:
    from seqtrain.training.compatibility import cells

    return list(cells())


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


def write_page(path: Path, sections: dict[str, list[str]]) -> None:
    """Write each section between its marks, `<!-- name -->` and `<!-- /name -->`, in a Markdown page."""
    page = path.read_text("utf-8")
    for name, lines in sections.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, opened, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise UserError(
                f"{path}: has no line {begin.strip()} with {end} below it; put them where the table belongs"
            )
        page = "".join([before, begin, *(f"{line}\n" for line in lines), end, after])
    atomic.write_text(path, page)


def models() -> list[str]:
    """Return the description of every built-in model with its options and defaults, from its file in conf/model."""
    from seqtrain.training.shipped import shipped, shipped_file

    lines = []
    for name in shipped("model"):
        lines += ["", f"### {name}", "", *_options(shipped_file("model", name).read_text("utf-8"))]
    for name in shipped("mixer"):
        lines += ["", f"### model.mixers=[{name}]", "", *_options(shipped_file("mixer", name).read_text("utf-8"))]
    return lines[1:]


def _options(text: str) -> list[str]:
    """Return the first comment of a YAML file, and a table of its options."""
    comments, rows, rates = [], [], []
    for line in text.splitlines():
        option = OPTION.fullmatch(line.strip())
        if line.startswith("# "):
            comments.append(line[2:])
        elif option and line.startswith("  "):  # under _recommend_: not the model's own
            rate = RECOMMENDED.fullmatch(option["default"]) or option
            rates.append(_row(f"optimizer.{option['name']}", rate["default"], "taken where you set none"))
        elif option and not line.startswith("_"):
            default, meaning = option["default"], option["meaning"] or ""
            recommends = RECOMMENDED.fullmatch(default)
            if recommends:
                default, meaning = recommends["default"], meaning or "where data or task recommends no other one"
            rows.append(_row(f"model.{option['name']}", default, meaning))
    return [" ".join(comments), "", "| option | default | meaning |", "|---|---|---|", *rows, *rates]


def _row(name: str, default: str, meaning: str) -> str:
    meaning = meaning.replace(" | ", ", ")  # a bar would end the cell
    if meaning:
        meaning += " "
    return f"| `{name}` | `{default}` | {meaning}|"
