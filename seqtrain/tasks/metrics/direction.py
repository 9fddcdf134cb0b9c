"""Whether less or more of a metric is better, by its name: one answer for loggers, searches and comparisons."""

from __future__ import annotations

from typing import Literal

SMALLER = ("loss", "perplexity", "bits_per_byte")
LARGER = ("accuracy", "bleu", "chrf", "f1", "exact_match")


def direction(name: str) -> Literal["min", "max"] | None:
    """Where a metric is better whose name ends in a known word, such as next_sentence_accuracy; None for others."""
    return "min" if name.endswith(SMALLER) else "max" if name.endswith(LARGER) else None
