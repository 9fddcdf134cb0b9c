"""Laws of retrieval: ties are in random order, equal texts answer for each other, and blocks change nothing."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from seqtrain.tasks.metrics import retrieval
from seqtrain.tasks.metrics.retrieval import DEPTHS, Ranks, chance, cosines, equal, rank


def ranked(left: np.ndarray, right: np.ndarray, *keys: list[int]) -> Ranks:
    size = {"count": len(left), "candidates": len(right)}
    return rank(cosines(left, right), equal(*(keys or [list(range(len(left)))])), **size)


def test_a_vector_that_says_nothing_scores_what_chance_scores() -> None:
    noise, count = np.random.default_rng(1).standard_normal((40, 8)), 40
    by_chance = chance(equal(list(range(count))), count=count, candidates=count).plain()
    assert by_chance["recall@1"] == pytest.approx(1 / count)
    assert by_chance["recall@10"] == pytest.approx(10 / count)
    assert by_chance["mrr"] == pytest.approx(sum(1 / place for place in range(1, count + 1)) / count)
    for constant in (np.zeros((count, 8)), np.ones((count, 8)), 1 + 1e-8 * noise):
        assert ranked(constant, constant[::-1]).plain() == pytest.approx(by_chance)


@pytest.mark.parametrize("seed", range(4))
def test_figures_are_the_mean_over_every_order_of_the_ties(seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, 3, (4, 6)).astype(float)
    right = draw.integers(0, 2, (4, 6)).astype(bool)
    right[:, 0] = True
    found = rank(lambda block: scores[block], lambda block: right[block].copy(), count=4, candidates=6)
    places = []
    for query, order in itertools.product(range(4), itertools.permutations(range(6))):
        ordered = sorted(order, key=lambda candidate: -scores[query, candidate])
        places.append(next(place for place, candidate in enumerate(ordered, 1) if right[query, candidate]))
    assert found.mrr() == pytest.approx(np.mean([1 / place for place in places]))
    for depth in DEPTHS:
        assert found.recall(depth) == pytest.approx(np.mean([place <= depth for place in places])), depth


def test_blocks_change_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    left, right = draw.standard_normal((37, 3)), draw.standard_normal((37, 3))
    keys = (draw.integers(0, 30, 37).tolist(), draw.integers(0, 30, 37).tolist())
    whole = ranked(left, right, *keys)
    monkeypatch.setattr(retrieval, "MAX_CELLS", 5 * 37)
    for one, other in zip(ranked(left, right, *keys), whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_stands_beside_an_equal_text_is_right() -> None:
    left = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    right = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    # The first source is the second one, too: what that one's target answers is an answer to it.
    assert ranked(left, right, [0, 0, 2], [0, 1, 2]).recall(1) == pytest.approx(2 / 3)
    assert ranked(left, right, [0, 1, 2], [0, 1, 2]).recall(1) == pytest.approx(1 / 3)


def test_a_query_is_no_candidate_for_itself_and_one_without_an_answer_is_not_asked() -> None:
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    labels, same = equal([0, 0, 1]), equal([0, 1, 2])
    found = rank(cosines(vectors, vectors), labels, same, count=3, candidates=3)
    assert len(found.above) == 2  # the third has a label of its own
    assert found.recall(1) == 1
    assert chance(labels, same, count=3, candidates=3).recall(1) == pytest.approx(1 / 2)


def test_memory_does_not_grow_with_queries_times_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "MAX_CELLS", 1 << 15)
    count = 3000
    vectors = np.random.default_rng(1).standard_normal((count, 4))
    tracemalloc.start()
    try:
        ranked(vectors, vectors)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < count * count  # bytes, of which all cosines would be eight times as many
