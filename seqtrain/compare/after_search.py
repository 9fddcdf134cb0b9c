"""What a comparison says beyond its verdict: which option mattered, and what is worth its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqtrain.compare import importance, pareto
from seqtrain.compare.verdict import Conclusion


def lines(found: Conclusion, costs: Sequence[pareto.Cost] = ()) -> list[str]:
    """For the terminal: the fronts that were asked for, and of a search the importance of its options."""
    shown = pareto.text_lines(found, costs)
    if importance.is_search(found):
        shown += importance.text_lines(importance.importances(found))
    return shown


def record(found: Conclusion) -> dict[str, Any]:
    """All of it as plain values, of every group."""
    known: dict[str, Any] = {}
    for cost, points in pareto.fronts(found).items():
        known[cost] = list(map(pareto.Point.record, points))
    return {"pareto": known, "importance": importance.importances(found).record()}
