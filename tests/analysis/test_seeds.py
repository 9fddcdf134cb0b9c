"""What is said of several seeds: never more than they show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from seqtrain.analysis import seeds


def test_the_interval_of_pairs_is_that_of_a_t_test() -> None:
    first, second = [1.0, 1.2, 1.1, 1.4], [0.8, 1.0, 0.95, 1.1]
    found = seeds.paired(first, second)
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.sign == 1


def test_one_seed_gives_no_verdict_however_far_apart() -> None:
    found = seeds.paired([100.0], [0.0])
    assert (found.sign, found.low, found.high) == (None, None, None)
    assert "one seed, no verdict" in found.words()
    assert seeds.spread([3.0]).deviation is None


def test_equal_numbers_give_no_verdict() -> None:
    assert seeds.paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).sign is None


def test_a_difference_that_no_seed_changes_gives_no_verdict() -> None:
    # The same run three times would look like certainty.
    found = seeds.paired([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    assert found.sign is None
    assert "the same for each seed" in found.words()


def test_a_number_that_is_not_finite_gives_no_verdict() -> None:
    found = seeds.paired([1.0, math.inf, 1.1], [0.0, 0.0, 0.1])
    assert found.sign is None
    assert "not finite" in found.words()


def test_seeds_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="1 and 2 seeds"):
        seeds.paired([1.0], [1.0, 2.0])


def test_a_seed_that_is_hard_for_both_models_hides_no_difference() -> None:
    hard = [0.0, 5.0, 10.0]
    better = [value - 1 + 0.01 * place for place, value in enumerate(hard)]
    assert seeds.paired(better, hard).sign == -1


@pytest.mark.parametrize("comparisons", [1, 4])
def test_equal_models_are_called_different_at_most_as_often_as_promised(comparisons: int) -> None:
    draws = np.random.default_rng(0).standard_normal((2000, 2 * comparisons, 3)).tolist()
    wrong = 0
    for family in draws:
        pairs = [seeds.paired(family[2 * each], family[2 * each + 1], comparisons) for each in range(comparisons)]
        wrong += any(pair.sign is not None for pair in pairs)
    assert 0.03 < wrong / len(draws) < 0.065


def test_intervals_of_several_comparisons_are_wider_and_say_so() -> None:
    alone, together = (seeds.paired([1.0, 1.2, 1.5], [0.0, 0.1, 0.2], count) for count in (1, 3))
    assert alone.low is not None
    assert together.low is not None
    assert together.low < alone.low
    assert "3 comparisons at once" in together.words()
    assert "comparisons" not in alone.words()
