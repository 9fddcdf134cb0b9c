"""Common style for the pictures of all analyses: figures are made and saved here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.files.atomic import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 120
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by people who see colours otherwise (Okabe & Ito 2008); a curve's theory is dashed, in its own colour."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    # Not by pyplot, which keeps each figure in memory and asks for a display.
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, completely or not at all; raise OSError if the file cannot be written."""
    with warnings.catch_warnings(), atomic(path) as file:
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure.savefig(file, format="png")
