"""Metrics of a run's task as its summary describes them, so that its record can be read without the task's code.

The summary may be untrusted: entries of another form count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from seqtrain.runs.summary import Summary
from seqtrain.terminal import printable

MAX_UNIT_CHARACTERS = 40


def better(summary: Summary, name: str) -> Literal["min", "max"] | None:
    """Return the better direction of a metric; None if the summary does not have it."""
    found = described(summary, name).get("better")
    if found in ("min", "max"):
        return found
    return None


def unit(summary: Summary, name: str) -> str:
    """Return the unit of the metric, which follows its numbers."""
    words = described(summary, name).get("unit")
    if not isinstance(words, str) or not words:
        words = name.replace("_", " ")
    return printable(words[:MAX_UNIT_CHARACTERS])


def tokenizer_free(summary: Summary, name: str) -> bool:
    """Return True if the metric is comparable between runs with different tokenizers."""
    return described(summary, name).get("tokenizer_free") is True


def of_answers(summary: Summary, name: str) -> bool | None:
    """Return True if the metric counts whole answers against labels or references; None if unknown."""
    found = described(summary, name).get("of_answers")
    return found if isinstance(found, bool) else None


def compared_by(summary: Summary) -> str:
    """Return the metric by which runs of the task are compared."""
    if summary.compared_by is None:  # every task has a loss
        return "loss"
    return summary.compared_by


def units(summary: Summary) -> dict[str, str]:
    """Return the unit of every metric in the summary."""
    return {name: unit(summary, name) for name in summary.measures or ()}


def described(summary: Summary, name: str) -> Mapping[str, Any]:
    """Return the summary's description of a metric; empty if there is none."""
    found = (summary.measures or {}).get(name)
    if isinstance(found, Mapping):
        return found
    return {}
