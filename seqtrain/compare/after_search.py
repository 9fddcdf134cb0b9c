"""Results of a comparison beyond its verdict: option importance and Pareto fronts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqtrain.compare import importance, pareto
from seqtrain.compare.verdict import Conclusion


def lines(found: Conclusion, costs: Sequence[pareto.Cost] = ()) -> list[str]:
    """Return the terminal's lines: the requested fronts and, for a search, the importance of its options."""
    shown = pareto.text_lines(found, costs)
    if importance.is_search(found):
        shown += importance.text_lines(importance.importances(found))
    return shown


def record(found: Conclusion) -> dict[str, Any]:
    """Return the importances and fronts of every group as plain values."""
    known: dict[str, Any] = {}
    for cost, points in pareto.fronts(found).items():
        known[cost] = list(map(pareto.Point.record, points))
    return {"pareto": known, "importance": importance.importances(found).record()}
