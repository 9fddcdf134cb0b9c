"""Metrics of labels by word: the F1 of spans, and ranges of positions that double in length.

Spans are read from BIO labels by the definition of seqeval (and of CoNLL's script).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

OUTSIDE = "O"
BIO = re.compile(r"[BIES]-.+", re.DOTALL)
STARTS, ENDS = ("B", "S"), ("E", "S")  # prefixes that always begin a span, and prefixes that always end one


class Span(NamedTuple):
    """A range of positions of one type, including the last one."""

    type: str
    first: int
    last: int


def is_bio(labels: Collection[str]) -> bool:
    """Return True if labels mark spans: `O`, or a type after `B-`, `I-`, `E-` (end) or `S-` (single); not all `O`."""
    # A single other label decides against it: parts of speech may have names such as `B-1`.
    marked = [label for label in labels if label != OUTSIDE]
    for label in marked:
        if not BIO.fullmatch(label):
            return False
    return bool(marked)


def spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of a sequence of BIO labels, in order.

    An `I-` that follows no label of its type begins a span, as in seqeval: a model may write such labels.
    """
    found: list[Span] = []
    before, type_before, first = OUTSIDE, "", 0
    # One label is appended, which ends a span that reaches the last position.
    for position, label in enumerate([*labels, OUTSIDE]):
        prefix, _, kind = label.partition("-")
        if before != OUTSIDE and (prefix == OUTSIDE or _begins(before, type_before, prefix, kind)):
            found.append(Span(type_before, first, position - 1))
        if prefix != OUTSIDE and _begins(before, type_before, prefix, kind):
            first = position
        before, type_before = prefix, kind
    return found


def _begins(before: str, type_before: str, prefix: str, kind: str) -> bool:
    """Return True if a label other than `O` begins a span, given the label before it."""
    return before == OUTSIDE or before in ENDS or prefix in STARTS or kind != type_before


def count_spans(predicted: Sequence[str], true: Sequence[str], kind: str | None = None) -> tuple[int, int, int]:
    """Count spans: correct ones (type and both ends), predicted ones, and true ones; with `kind`, of this type only."""
    # A span of the right type with a wrong end counts as wrong.
    ours, theirs = ({span for span in spans(each) if kind in (None, span.type)} for each in (predicted, true))
    return len(ours & theirs), len(ours), len(theirs)


def span_f1(right: float, predicted: float, true: float) -> float:
    """Return the harmonic mean of precision and recall over all spans; 0 if there are no spans, as in seqeval."""
    return 2 * right / (predicted + true) if predicted + true else 0.0


def malformed(labels: Sequence[str]) -> int:
    """Count labels that continue a span without one before them: `I-` or `E-` after another type or after `O`."""
    count = 0
    before, type_before = OUTSIDE, ""
    for label in labels:
        prefix, _, kind = label.partition("-")
        goes_on = before not in (OUTSIDE, *ENDS) and kind == type_before
        count += prefix in ("I", "E") and not goes_on
        before, type_before = prefix, kind
    return count


NUM_RANGES = 32  # the last one holds all positions beyond


def range_of(positions: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return the index of the range of each position; position 0 is in the first range."""
    # By integer comparisons: a logarithm in floats could put a power of two into the wrong range.
    ends = 2 ** torch.arange(NUM_RANGES - 1, device=positions.device)
    return torch.searchsorted(ends, positions)


def range_names() -> list[str]:
    """Return the label of each range of positions."""
    names = ["1", "2"]
    for number in range(2, NUM_RANGES):
        names.append(f"{2 ** (number - 1) + 1}-{2**number}")
    return names
