"""Paired bootstrap of two runs over the same examples (Koehn 2004); its result does not cover other seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqtrain.compare.entries import decimals
from seqtrain.compare.groups import Group
from seqtrain.compare.variants import CONFIDENCE
from seqtrain.errors import UserError
from seqtrain.tasks.metrics.bootstrap import RESAMPLES, interval, resample

Reduced = dict[str, tuple[Any, float]]  # sum and count of each loss term, as `task.measure` takes them


def bootstrap(
    one: Sequence[Reduced], other: Sequence[Reduced], measure: Callable[[Reduced], float]
) -> tuple[float, float, float]:
    """Resample the batches of two runs with replacement, with the same draws for both.

    Args:
        one: the terms of each batch of the first run.
        other: the terms of each batch of the second run.
        measure: computes the metric from weighted terms.

    Returns:
        measure(other) - measure(one), and the lower and upper end of its 95 % interval.

    Raises:
        UserError: the runs have different batches.
    """
    tables = _tables(one), _tables(other)
    if not _same_counts(*tables):
        raise UserError(
            "--paired: the two runs do not read the text in the same pieces (another tokenizer, or another tbptt.k2); "
            "leave --paired out"
        )
    shapes = {name: np.shape(total) for name, (total, _) in one[0].items()}

    def difference(weights: np.ndarray) -> float:  # (N,), how often each batch was drawn
        first, second = (measure(_weighted(table, shapes, weights)) for table in tables)
        return second - first

    # Resample sums and counts instead of metrics: BLEU and others are not means over batches.
    low, high = interval(resample(difference, len(one)), CONFIDENCE)
    return difference(np.ones(len(one))), float(low), float(high)


def verdict(names: Sequence[str], found: tuple[float, float, float], group: Group, size: int, kind: str) -> str:
    """Describe the result of `bootstrap` in words that make no claim about other seeds.

    Args:
        names: the names of the two runs.
        found: the result of `bootstrap`.
        group: has the metric's unit and mode.
        size: the number of batches of each run.
        kind: noun for the batches, such as `examples`.
    """
    difference, low, high = found
    worse, better = names
    if difference < 0:  # swapped, so that the interval is for the better run's lead
        difference, low, high = -difference, -high, -low
        better, worse = names
    if group.mode == "min":
        better, worse = worse, better
    digits = decimals((high - low) / 2) if high > low else 4
    claim = f"{better} is better than {worse} by"
    if low <= 0:
        claim = f"no significant difference: {better} is better than {worse} by"
    amount = f"{abs(difference):.{digits}f} {group.unit} (95 % interval {low:.{digits}f} to {high:.{digits}f}"
    return (
        f"these two runs: {claim} {amount} over {size:,} {kind} of validation, resampled {RESAMPLES:,} times); "
        "this says nothing about other seeds"
    )


def _tables(batches: Sequence[Reduced]) -> dict[str, np.ndarray]:
    """Return a table (N, K + 1) for each term: a row per batch with its K sums, and its count in the last column."""
    tables = {}
    for name in batches[0]:
        rows = []
        for batch in batches:
            total, count = batch[name]
            rows.append([*np.ravel(total), count])
        tables[name] = np.array(rows, dtype=float)
    return tables


def _same_counts(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Return True if each batch has the same number of targets in both runs: otherwise they cannot be paired."""
    return all(np.array_equal(table[:, -1], other[name][:, -1]) for name, table in one.items())


def _weighted(tables: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], weights: np.ndarray) -> Reduced:
    """Return the terms summed over all batches, each counted as often as `weights` (N,) gives."""
    reduced: Reduced = {}
    for name, table in tables.items():
        *flat, count = (weights @ table).tolist()
        reduced[name] = np.reshape(flat, shapes[name]).tolist(), count
    return reduced
