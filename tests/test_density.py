"""The code reads line by line: few nested expressions, short functions, and reasons beside them.

`python -m tests.test_density` prints the figures of each room.
"""

from __future__ import annotations

import ast
import collections
import io
import statistics
import tokenize
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "seqtrain"
DENSE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Figures:
    """Counts over some modules."""

    lines: int = 0  # that are not blank
    code: int = 0  # of them those that are no docstring
    comments: int = 0
    dense: int = 0  # comprehensions and ternaries
    functions: list[int] = field(default_factory=list)  # the lines of code of each

    @property
    def dense_per_1000(self) -> float:
        return 1000 * self.dense / self.lines

    @property
    def comments_per_100(self) -> float:
        return 100 * self.comments / self.code

    def add(self, module: Path) -> None:
        text = module.read_text("utf-8")
        tree = ast.parse(text)
        written = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()}
        code = written - docstring_lines(tree)
        self.lines += len(written)
        self.code += len(code)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments += sum(token.type == tokenize.COMMENT for token in tokens)
        for node in ast.walk(tree):
            self.dense += isinstance(node, DENSE)
            if isinstance(node, FUNCTIONS):
                self.functions.append(len(code & set(range(node.lineno, (node.end_lineno or node.lineno) + 1))))


def docstring_lines(tree: ast.Module) -> set[int]:
    """The numbers of the lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


@cache
def whole() -> Figures:
    figures = Figures()
    for module in PACKAGE.rglob("*.py"):
        figures.add(module)
    return figures


def test_comprehensions_and_ternaries_are_at_most_forty_in_a_thousand_lines() -> None:
    assert whole().dense_per_1000 <= 40


def test_comments_are_at_least_eight_for_a_hundred_lines_of_code() -> None:
    assert whole().comments_per_100 >= 8


def test_functions_are_short() -> None:
    lengths = whole().functions
    assert statistics.median(lengths) <= 9
    assert max(lengths) <= 60


def main() -> None:
    rooms: dict[str, Figures] = collections.defaultdict(Figures)
    for module in sorted(PACKAGE.rglob("*.py")):
        rooms[str(module.parent.relative_to(REPOSITORY))].add(module)
    rooms["whole"] = whole()
    for room, figures in rooms.items():
        lengths = figures.functions or [0]
        print(
            f"{room:32}{figures.lines:7} lines, {figures.code:6} without docstrings, "
            f"{figures.comments_per_100:5.1f} comments for 100, {figures.dense_per_1000:5.1f} dense for 1,000, "
            f"functions: median {statistics.median(lengths):g}, at most {max(lengths)}"
        )


if __name__ == "__main__":
    main()
