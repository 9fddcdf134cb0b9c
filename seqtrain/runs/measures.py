"""What a run's summary says of the metrics of its task, so that nobody who reads its record needs the task's code.

A stranger may have written the summary: what is no such thing counts as not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from seqtrain.runs.summary import Summary
from seqtrain.terminal import printable

MAX_UNIT_CHARACTERS = 40


def better(summary: Summary, name: str) -> Literal["min", "max"] | None:
    """Whether less or more of a metric is better; None where the summary does not say."""
    found = said(summary, name).get("better")
    if found in ("min", "max"):
        return found
    return None


def unit(summary: Summary, name: str) -> str:
    """What stands behind a number of the metric."""
    words = said(summary, name).get("unit")
    if not isinstance(words, str) or not words:
        words = name.replace("_", " ")
    return printable(words[:MAX_UNIT_CHARACTERS])


def tokenizer_free(summary: Summary, name: str) -> bool:
    """Whether runs of different tokenizers may be held against each other in the metric."""
    return said(summary, name).get("tokenizer_free") is True


def of_answers(summary: Summary, name: str) -> bool | None:
    """Whether the metric counts whole answers against labels or references; None where an older version wrote it."""
    found = said(summary, name).get("of_answers")
    return found if isinstance(found, bool) else None


def compared_by(summary: Summary) -> str:
    """The metric in which runs of the task are held against each other."""
    if summary.compared_by is None:  # every task has a loss
        return "loss"
    return summary.compared_by


def units(summary: Summary) -> dict[str, str]:
    """The unit of every metric that the summary speaks of."""
    return {name: unit(summary, name) for name in summary.measures or ()}


def said(summary: Summary, name: str) -> Mapping[str, Any]:
    """All that is said of a metric; empty where nothing is."""
    found = (summary.measures or {}).get(name)
    if isinstance(found, Mapping):
        return found
    return {}
