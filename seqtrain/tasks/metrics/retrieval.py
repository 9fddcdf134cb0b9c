"""Retrieval: the rank of a query's own answer among all candidates, and the metrics computed from ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

DEPTHS = (1, 5, 10)
# Cosines this close count as equal: a text's last bits depend on its batch, and a constant vector has more noise.
TIE = 1e-6
MAX_CELLS = 1 << 22  # cosines in memory at once: 32 MiB, and a few more arrays of that shape

Scores = Callable[[slice], Float[np.ndarray, "b N"]]
"""The cosine of each query of a block with each candidate."""
Marks = Callable[[slice], Bool[np.ndarray, "b N"]]
"""A mask of candidates for each query of a block."""


class Ranks(NamedTuple):
    """The rank of the first right candidate of each query, as counts."""

    above: Int[np.ndarray, " n"]  # wrong candidates with a larger cosine
    wrong: Int[np.ndarray, " n"]  # wrong candidates with the same cosine
    right: Int[np.ndarray, " n"]  # right candidates with the same cosine; at least one

    def recall(self, depth: int) -> float:
        """Return the share of queries with a right candidate in the first `depth`, expected over the order of ties."""
        drawn = depth - self.above  # places that are left for the candidates with this cosine
        missed = np.ones(len(self.above))
        for place in range(depth):
            # Chance that the next place goes to a wrong candidate too, drawn without replacement.
            chance = np.maximum(self.wrong - place, 0) / np.maximum(self.wrong + self.right - place, 1)
            missed = np.where(place < drawn, missed * chance, missed)
        return float(np.where(drawn > 0, 1 - missed, 0.0).mean())

    def mrr(self) -> float:
        """Return the mean of 1 / the place of the first right candidate, expected over the order of ties."""
        # Most queries share a few distinct cases.
        cases, counts = np.unique(np.stack(self), axis=1, return_counts=True)
        total = 0.0
        for case, count in zip(cases.T.tolist(), counts.tolist(), strict=True):
            total += count * _reciprocal(*case)
        return total / len(self.above)

    def plain(self) -> dict[str, float]:
        """Return the measures by name."""
        return {**{f"recall@{depth}": self.recall(depth) for depth in DEPTHS}, "mrr": self.mrr()}


def _reciprocal(above: int, wrong: int, right: int) -> float:
    """Return the expected 1 / place of the first of `right` among `wrong`, in random order after `above` others."""
    if wrong == 0:
        return 1 / (above + 1)
    before = np.arange(wrong + 1)  # wrong candidates before it
    missed = np.concatenate([[1.0], np.cumprod((wrong - before[:-1]) / (wrong + right - before[:-1]))])
    return float((missed * right / (wrong + right - before) / (above + before + 1)).sum())


def rank(scores: Scores, is_right: Marks, is_left_out: Marks | None = None, *, count: int, candidates: int) -> Ranks:
    """Rank the candidates of each query. Memory does not grow with queries times candidates.

    Args:
        scores: the cosines of a block of queries.
        is_right: which candidates answer a query.
        is_left_out: which candidates are excluded for a query, such as the query itself.
        count: number of queries.
        candidates: number of candidates.

    Returns:
        The ranks of the queries that have a right candidate.
    """
    parts = []
    # Whole rows, not tiles: the cosine of the best right candidate must be known before the others are counted.
    step = max(1, MAX_CELLS // candidates)
    for begin in range(0, count, step):
        block = slice(begin, min(begin + step, count))
        cosines, right = scores(block), is_right(block)
        if is_left_out is not None:
            left_out = is_left_out(block)
            right &= ~left_out
            cosines = np.where(left_out, -np.inf, cosines)
        # Only the first right candidate determines recall and 1 / place; later ones do not count.
        best = np.where(right, cosines, -np.inf).max(1, keepdims=True)
        # A query without a right candidate is left out: it would count as a miss.
        asked = np.isfinite(best[:, 0])
        cosines, right, best = cosines[asked], right[asked], best[asked]
        tied = np.abs(cosines - best) <= TIE
        above = (cosines > best + TIE).sum(1)
        parts.append((above, (tied & ~right).sum(1), (tied & right).sum(1)))
    return Ranks(*map(np.concatenate, zip(*parts, strict=True)))


def chance(is_right: Marks, is_left_out: Marks | None = None, *, count: int, candidates: int) -> Ranks:
    """Rank with equal scores for all candidates."""

    def constant(block: slice) -> Float[np.ndarray, "b N"]:
        return np.zeros((block.stop - block.start, candidates))

    return rank(constant, is_right, is_left_out, count=count, candidates=candidates)


def cosines(queries: Float[np.ndarray, "n D"], candidates: Float[np.ndarray, "N D"]) -> Scores:
    """Return cosines of vectors; a vector of zeros has cosine 0 with all others."""
    left, right = _unit(queries), _unit(candidates).T
    return lambda block: left[block] @ right


def equal(*columns: Sequence[int] | Shaped[np.ndarray, " n"]) -> Marks:
    """Mark candidates that have the same key as the query in one of the columns; row i of both belongs to one pair."""
    keys = [np.asarray(column) for column in columns]

    def marks(block: slice) -> Bool[np.ndarray, "b N"]:
        found = keys[0][block, None] == keys[0]
        for key in keys[1:]:
            found |= key[block, None] == key
        return found

    return marks


def _unit(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """Scale vectors to length 1 in float64, where rounding errors of their products are far below TIE."""
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)


def partition(scores: Scores, is_right: Marks, *, count: int) -> float:
    """Return the mean log-sum-exp of the scores of each query and of each candidate, in equal parts.

    Query i and candidate i are a pair. Other right candidates of a query are left out.
    """
    by_query, by_candidate = np.zeros(count), np.full(count, -np.inf)
    step = max(1, MAX_CELLS // count)
    for begin in range(0, count, step):
        block = slice(begin, min(begin + step, count))
        left_out = is_right(block)
        rows = np.arange(block.start, block.stop)
        left_out[rows - begin, rows] = False
        cells = np.where(left_out, -np.inf, scores(block))
        by_query[block] = np.logaddexp.reduce(cells, axis=1)
        by_candidate = np.logaddexp(by_candidate, np.logaddexp.reduce(cells, axis=0))
    return float((by_query.mean() + by_candidate.mean()) / 2)
