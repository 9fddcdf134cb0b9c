"""Results of measurements: a record, lines to print, and files."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic, plain_json, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_RUNS = ("run_dir", "dry_run", "run", "logger", "callbacks")  # output and logging of a training


class Measured(NamedTuple):
    """Result of a measurement. Its files are already written."""

    record: dict[str, Any]
    lines: list[str]
    files: list[Path]

    def tell(self, *, as_json: bool) -> int:
        """Print the result and the paths of its files; return the exit code."""
        print(plain_json(self.record) if as_json else "\n".join(self.lines))
        for path in self.files:
            say(f"written: {path}")
        return 0


def refuse_idle(overrides: Sequence[str], reason: str, idle: Collection[str] = OF_RUNS) -> None:
    """Raise UserError if an override sets a group or key that does not affect the measurement."""
    from seqtrain.config.check import group_of

    for word in overrides:
        if group_of(word) in idle:
            raise UserError(f"{word}: changes nothing here: {reason}; leave it out")


def written(folder: Path, name: str, record: dict[str, Any], lines: list[str], pictures: list[str]) -> Measured:
    """Write the record as NAME.json and return the result.

    Args:
        folder: Folder of the record and the plots.
        name: Name of the record's file, without its suffix.
        record: Numbers to write.
        lines: Lines to print.
        pictures: File names of plots that are already in the folder.
    """
    text = plain_json(record, indent=1)
    write_text(folder / f"{name}.json", f"{text}\n")
    files = [folder / file for file in (f"{name}.json", *pictures)]
    # Parse the record again, which turns tuples into lists: Python callers and readers of the file get the same.
    return Measured(json.loads(text), lines, files)


DOTS_PER_INCH = 120
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""A colour-blind safe palette (Okabe & Ito 2008). The theory of a curve is dashed, in the same colour."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    # Without pyplot, which keeps each figure in memory and needs a display.
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, atomically; raise OSError if the file cannot be written."""
    with warnings.catch_warnings(), atomic(path) as file:
        warnings.simplefilter("ignore")  # about characters missing from the font
        figure.savefig(file, format="png")
