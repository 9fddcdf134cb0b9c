"""The paired bootstrap over examples: it resamples sums, so it holds for any metric, and speaks of two runs only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqtrain.compare.entries import Entry
from seqtrain.compare.groups import Group
from seqtrain.compare.paired_bootstrap import Reduced, bootstrap, verdict
from seqtrain.errors import UserError
from seqtrain.runs.summary import Summary
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.translation import compute, update

REFERENCES = [f"the number {number} comes after {number - 1} and before {number + 1}" for number in range(12)]


def sentences(hypotheses: list[str]) -> list[Reduced]:
    """What each of these translations adds to BLEU and its like."""
    return [
        {name: (total.tolist(), count) for name, (total, count) in update([hypothesis], [reference]).items()}
        for hypothesis, reference in zip(hypotheses, REFERENCES, strict=True)
    ]


def means(values: np.ndarray, counts: np.ndarray) -> list[Reduced]:
    """Pieces of so many tokens each, with these mean losses."""
    return [{"loss": (float(value * count), float(count))} for value, count in zip(values, counts, strict=True)]


def loss(totals: Reduced) -> float:
    """The mean over tokens."""
    return totals["loss"][0] / totals["loss"][1]


def bleu(totals: Reduced) -> float:
    """The score of all sentences together, which is no mean of theirs."""
    return compute(totals)["bleu"]


def test_the_difference_is_that_of_the_whole_split_in_any_metric() -> None:
    right, wrong = sentences(REFERENCES), sentences([text.replace("after", "past") for text in REFERENCES])
    together = update([text.replace("after", "past") for text in REFERENCES], REFERENCES)
    whole = bleu({name: (total.tolist(), count) for name, (total, count) in together.items()})
    difference, low, high = bootstrap(right, wrong, bleu)
    assert difference == pytest.approx(whole - 100)
    assert low <= difference <= high < 0


def test_the_interval_of_a_mean_is_as_wide_as_its_standard_error_says() -> None:
    rng = np.random.default_rng(0)
    counts, one = np.full(900, 7.0), rng.normal(1.0, 1.0, 900)
    other = one + rng.normal(0.1, 0.3, 900)  # what the two share cancels: the draw is the same for both
    _, low, high = bootstrap(means(one, counts), means(other, counts), loss)
    assert (high - low) / 2 == pytest.approx(1.96 * (other - one).std() / 30, rel=0.1)


def test_a_long_piece_weighs_as_much_as_it_holds() -> None:
    counts = np.array([99.0, 1.0])
    difference, _, _ = bootstrap(means(np.zeros(2), counts), means(np.array([1.0, 5.0]), counts), loss)
    assert difference == pytest.approx(1.04)


def test_pieces_that_are_not_the_same_ones_are_refused() -> None:
    one = means(np.ones(3), np.array([3.0, 4.0, 4.0]))
    for other in ([3.0, 4.0, 5.0], [3.0, 4.0]):
        with pytest.raises(UserError, match="not read the text in the same pieces"):
            bootstrap(one, means(np.ones(len(other)), np.array(other)), loss)


def test_the_words_name_the_better_of_these_two_runs() -> None:
    entry = Entry(Path("run"), "run", "", {}, Summary.from_plain(NextToken.said()))
    two = "two is better than one by 0.30 nats a token (95 % interval 0.10 to 0.50 over 1,200 examples"
    one = two.replace("two is better than one", "one is better than two")
    unsure = "no significant difference: one is better than two by 0.30 nats a token (95 % interval -0.1"
    for mode, found, says in (
        ("min", (0.3, 0.1, 0.5), one),
        ("min", (-0.3, -0.5, -0.1), two),
        ("max", (0.3, 0.1, 0.5), two),
        ("max", (-0.3, -0.5, 0.1), unsure),
    ):
        said = verdict(["one", "two"], found, Group("loss", mode, [entry]), 1200, "examples")  # type: ignore[arg-type]
        assert said.startswith(f"these two runs: {says}"), (mode, found)
        assert said.endswith("this says nothing about other seeds")
