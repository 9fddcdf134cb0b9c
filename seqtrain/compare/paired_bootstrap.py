"""Two runs on the same examples: paired bootstrap over examples, which knows nothing of seeds (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqtrain.compare.guard import Group
from seqtrain.compare.variants import CONFIDENCE
from seqtrain.compare.verdict import places
from seqtrain.errors import UserError

RESAMPLES = 1000

Reduced = dict[str, tuple[Any, float]]
"""Sum and count of each part of a piece, or of many, as `task.measure` takes them."""


def bootstrap(
    one: Sequence[Reduced], other: Sequence[Reduced], measure: Callable[[Reduced], float], *, seed: int = 0
) -> tuple[float, float, float]:
    """measure(other) - measure(one) of two runs, and its 95 % interval over the pieces, drawn anew with replacement.

    Both runs get the same draw each time. UserError where their pieces are not the same ones.
    """
    tables = _stacked(one), _stacked(other)
    shapes = {name: np.shape(total) for name, (total, _) in one[0].items()}
    if len(one) != len(other) or any(
        not np.array_equal(part[:, -1], tables[1][name][:, -1]) for name, part in tables[0].items()
    ):
        raise UserError(
            "--paired: the two runs do not read the text in the same pieces (another tokenizer, or another tbptt.k2); "
            "leave --paired out"
        )

    def difference(weights: np.ndarray) -> float:
        first, second = (measure(_summed(table, shapes, weights)) for table in tables)
        return second - first

    size, rng = len(one), np.random.default_rng(seed)
    drawn = [difference(np.bincount(rng.integers(size, size=size), minlength=size)) for _ in range(RESAMPLES)]
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [edge, 1 - edge])
    return difference(np.ones(size)), float(low), float(high)


def verdict(names: Sequence[str], found: tuple[float, float, float], group: Group, size: int, kind: str) -> str:
    """What two runs' `bootstrap` over so many pieces says, in words that promise nothing of other seeds."""
    worse_by, *edges = found
    if (worse_by >= 0) == (group.mode == "min"):
        better, worse = names
    else:
        worse, better = names
    difference, (low, high) = abs(worse_by), sorted(edges if worse_by >= 0 else (-edge for edge in edges))
    digits = places((high - low) / 2) if high > low else 4
    told = f"{difference:.{digits}f} {group.unit} (95 % interval {low:.{digits}f} to {high:.{digits}f}"
    claim = f"{better} is better than {worse} by"
    if low <= 0:
        claim = f"not shown which of {better} and {worse} is better: the first by"
    return (
        f"these two runs: {claim} {told} over {size:,} {kind} of validation, drawn anew {RESAMPLES:,} times); "
        "that says nothing of other seeds"
    )


def _stacked(batches: Sequence[Reduced]) -> dict[str, np.ndarray]:
    """Of each part the sums and, last, the counts: (N, ..., + 1), tables laid flat."""
    return {
        name: np.array([[*np.ravel(piece[name][0]), piece[name][1]] for piece in batches], dtype=float)
        for name in batches[0]
    }


def _summed(table: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], weights: np.ndarray) -> Reduced:
    """The parts of as many copies of each piece as `weights` (N,) say."""
    sums = {name: weights @ part for name, part in table.items()}
    return {
        name: (total[:-1].reshape(shapes[name]).tolist() if shapes[name] else float(total[0]), float(total[-1]))
        for name, total in sums.items()
    }
