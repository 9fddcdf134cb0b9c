"""A verdict is honest: chance is called chance, a real difference is found, and the words promise no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.power import METHODS, SPREADS, error, power
from seqtrain.compare.comparisons import compared, reaches
from seqtrain.compare.entries import read
from seqtrain.compare.intervals import NOMINAL, half_widths
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import conclusions
from tests.support import fake_runs

TIMES, SEEDS, EXAMPLES = 1000, 3, 300
SEED_SD, EXAMPLE_SD = 0.05, 0.25


def folded(*values: Any) -> list[Variant]:
    """Variants of these values, the smallest mean first."""
    fake_runs = [Variant(f"variant{place}", (), (), tuple(map(float, own)), {}) for place, own in enumerate(values)]
    return sorted(fake_runs, key=lambda variant: variant.mean or 0.0)


def means(rng: np.random.Generator, num_variants: int) -> np.ndarray:
    """(comparisons, variants, seeds): mean losses over examples, drawn as such."""
    sd = (SEED_SD**2 + EXAMPLE_SD**2 / EXAMPLES) ** 0.5
    return rng.normal(1.0, sd, (TIMES, num_variants, SEEDS))


def test_of_equal_variants_at_most_one_comparison_in_twenty_calls_any_different() -> None:
    for num_variants in (2, 4):
        drawn = means(np.random.default_rng(0), num_variants)
        called = [any(pair.significant for pair in compared(folded(*each), "min")) for each in drawn]
        assert np.mean(called) <= 0.05
        assert np.mean(called) > 0  # it can be led astray, and is not merely silent


def test_a_real_difference_is_found() -> None:
    better = means(np.random.default_rng(1), 2)
    sd = better.std()
    better[:, 0] -= 4 * sd
    found = [compared(folded(*each), "min")[0] for each in better]
    assert np.mean([fake_runs.significant and fake_runs.reference.name == "variant0" for fake_runs in found]) > 0.8
    assert np.mean([fake_runs.low <= 4 * sd <= fake_runs.high for fake_runs in found]) >= 0.95


def test_intervals_are_students_welchs_and_games_and_howells_the_last_two_of_the_stricter_level() -> None:
    stats = pytest.importorskip("scipy.stats")
    samples = [(1.5, 1.62, 1.54, 1.7), (1.7, 1.9, 1.71, 2.05), (2.0, 2.1, 2.2, 2.05)]
    (variant,) = folded(samples[0])
    assert variant.interval == pytest.approx(stats.ttest_1samp(variant.values, 0).confidence_interval(0.95))
    welch = stats.ttest_ind(samples[1], samples[0], equal_var=False).confidence_interval(NOMINAL)
    (found,) = compared(folded(*samples[:2]), "min")
    assert (found.low, found.high) == pytest.approx(tuple(welch))
    howell = stats.tukey_hsd(*samples, equal_var=False).confidence_interval(NOMINAL)
    several = compared(folded(*samples), "min")
    assert [each.low for each in several] == pytest.approx(howell.low[1:, 0], rel=0.02)  # between points of the grid
    assert [each.high for each in several] == pytest.approx(howell.high[1:, 0], rel=0.02)


# -- in words ----------------------------------------------------------------------------------------------------


def verdict(path: Path, final: dict[str, tuple[float, ...]], **options: Any) -> list[str]:
    """The sentences on a sweep of these values."""
    ask = {name: options.pop(name) for name in ("x", "checkpoint", "against", "target") if name in options}
    (found,) = conclusions(read([fake_runs.sweep(path / "sweep", final, **options)]), **ask)
    return found.sentences


BLEU: dict[str, Any] = {"metric": "bleu", "monitor": ["bleu", "max"], "config": fake_runs.TRANSLATION}
# Values over seeds, options, and how the sentences begin.
SENTENCES: dict[str, tuple[dict[str, tuple[float, ...]], dict[str, Any], list[str]]] = {
    "a difference with its interval and cost": (
        {"gpt": (1.62, 1.64, 1.63), "lstm": (1.5, 1.51, 1.52)},
        {"values": (3.0,)},
        [
            "lstm beats gpt by 0.120 bits per byte (95 % interval 0.095 to 0.145, 3 seeds each, "
            "12 standard deviations of seeds) after 2k tokens each"
        ],
    ),
    "more is better": (
        {"gpt": (20.0, 21.0, 22.0), "lstm": (30.0, 31.0, 32.0)},
        BLEU,
        ["lstm beats gpt by 10.0 BLEU (95 % interval 7.5 to 12.5"],
    ),
    "chance explains it": (
        {"lstm": (1.4, 1.5, 1.6), "gpt": (1.42, 1.52, 1.62)},
        {},
        [
            "no significant difference: lstm 1.500, gpt 1.520 bits per byte, difference 0.020 "
            "(95 % interval -0.23 to 0.27"
        ],
    ),
    "a wide interval does not hide the values": (
        {"lstm": (1.0, 9.0), "gpt": (1.3, 9.4)},
        {},
        ["no significant difference: lstm 5.000, gpt 5.350 bits per byte, difference 0.350 (95 % interval -28 to 29"],
    ),
    "one seed each": (
        {"lstm": (1.0,), "gpt": (9.0,)},
        {},
        ["no conclusion: lstm 1.000, gpt 9.000 bits per byte: one seed each; 3 seeds would be a start"],
    ),
    "one seed beside several": (
        {"lstm": (1.0, 1.01), "gru": (3.0, 3.01), "gpt": (0.5,)},
        {},
        ["lstm beats gru", "no conclusion: how gpt 0.5000 bits per byte would do with other seeds"],
    ),
    "over all pairs": (
        {"lstm": (1.0, 1.01), "gru": (3.0, 3.01), "gpt": (5.0, 5.01)},
        {},
        [
            "best: lstm, ahead of all 2 others",
            "lstm beats gru by 2.000 bits per byte (95 % interval over all 3 pairs 1",
            "lstm beats gpt by 4.000 bits per byte (95 % interval over all 3 pairs 3",
        ],
    ),
    "ties of the best": (
        {"lstm": (1.0, 1.1, 1.2), "gru": (1.05, 1.15, 1.2), "gpt": (5.0, 5.1, 5.2)},
        {},
        ["best: lstm, no significant difference from: gru", "no significant difference", "lstm beats gpt"],
    ),
    "seeds of one number": (
        {"lstm": (1.5, 1.5, 1.5), "gpt": (1.7, 1.7, 1.7)},
        {},
        ["no conclusion: lstm 1.500, gpt 1.700 bits per byte: seeds that give the same number count as one"],
    ),
}


def test_a_verdict_is_said_with_its_interval_and_promises_no_more(tmp_path: Path) -> None:
    for place, (name, (values, options, expected)) in enumerate(SENTENCES.items()):
        said = verdict(tmp_path / str(place), values, **options)
        assert len(said) == len(expected), (name, said)
        for sentence, start in zip(said, expected, strict=True):
            assert sentence.startswith(start), (name, sentence)


def test_what_is_not_shown_says_how_many_seeds_would_show_it(tmp_path: Path) -> None:
    (said,) = verdict(tmp_path, {"lstm": (1.0, 1.1, 1.2), "gpt": (1.15, 1.25, 1.35)})
    number = int(re.search(r"; about (\d+) seeds each would show one of this size$", said)[1])  # type: ignore[index]
    spread = 0.1
    assert half_widths(np.full(2, spread**2), np.full(2, number), np.array(0))[1] < 0.15
    assert half_widths(np.full(2, spread**2), np.full(2, number // 2), np.array(0))[1] > 0.15


def test_against_a_variant_others_may_be_better_or_worse(tmp_path: Path) -> None:
    values = {"lstm": (1.0, 1.01, 1.02), "gru": (3.0, 3.01, 3.02), "gpt": (5.0, 5.01, 5.02)}
    for options, expected in (
        ({}, ["gru beats gpt", "lstm beats gru"]),
        (BLEU, ["gpt beats gru", "gru beats lstm"]),
    ):
        said = verdict(tmp_path / str(len(options)), values, against="gru", **options)
        assert sorted(line.partition(" by ")[0] for line in said) == expected
        assert all(re.search(r"by 2\.\d+ ", line) and "interval over all 3 pairs 1.9" in line for line in said)


def test_one_variant_that_went_wild_does_not_hide_the_others() -> None:
    tame = [(1.0 + place, 1.01 + place, 1.02 + place) for place in range(9)]
    alone = compared(folded(*tame), "min")
    beside = compared(folded(*tame, (100.0, 900.0, 2000.0)), "min")
    assert all(each.significant for each in beside[:-1])
    assert not beside[-1].significant
    assert beside[0].high - beside[0].low < 3 * (alone[0].high - alone[0].low)


def test_a_variant_borrows_spread_from_the_others_and_never_has_less_than_its_own() -> None:
    counts = np.full(12, 3)
    even = half_widths(np.full(12, 1.0), counts, np.array(0))[1]
    lucky = np.full(12, 1.0)
    lucky[1] = 1e-6  # three seeds that happen to agree
    wide = np.full(12, 1.0)
    wide[1] = 9.0
    assert half_widths(lucky, counts, np.array(0))[1] > 0.8 * even
    assert half_widths(wide, counts, np.array(0))[1] > 2 * even


def test_many_variants_of_three_seeds_are_told_apart_where_bonferroni_saw_nothing() -> None:
    counts, number = np.full(20, 3), 400
    now, before = (power(method, "equal", counts, number) for method in METHODS.values())
    assert now > 2 * before
    for kind in SPREADS:
        assert error(half_widths, kind, counts, number) <= 0.05 + 3 * (0.05 * 0.95 / number) ** 0.5


# -- a target ----------------------------------------------------------------------------------------------------


def test_a_target_is_reached_where_the_bound_over_seeds_reaches_it_and_from_which_step(tmp_path: Path) -> None:
    values = {"lstm": (1.50, 1.51, 1.52), "gpt": (1.60, 1.90, 1.70), "gru": (1.0,)}
    said = verdict(tmp_path, values, target=1.88, values=(3.0, 1.7))
    assert said[:3] == [
        "target 1.88: no conclusion: gru 1.000 bits per byte of one seed; 3 seeds would be a start",
        "target 1.88: reached by lstm 1.510 bits per byte over 3 seeds (p < 0.01), at every validation from step 100 "
        "on",
        "target 1.88: no conclusion: gpt 1.733 bits per byte over 3 seeds (needs p < 0.01)",
    ]


def test_equal_variants_are_said_to_reach_a_target_that_they_miss_in_one_of_a_hundred() -> None:
    rng = np.random.default_rng(0)
    for mode, sign in (("min", 1.0), ("max", -1.0)):
        values = rng.normal(0.0, 1.0, (4000, 3))
        assert 0.004 < np.mean([reaches(each, 0.0, mode) for each in values]) < 0.016  # type: ignore[arg-type]
        assert np.mean([reaches(each, sign * 20.0, mode) for each in values]) > 0.9  # type: ignore[arg-type]


def test_a_variant_that_stands_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    (said,) = verdict(tmp_path, {"lstm": (1.5, 1.6)})
    assert said == "no conclusion: lstm 1.550 bits per byte: no other variant has a value to compare it with"
    fake_runs.run(tmp_path / "begun" / "0", status="failed")
    (found,) = conclusions(read([tmp_path / "begun"]))
    assert found.sentences == ["no conclusion: no finished run has bits per byte of validation"]


def test_rounding_is_no_spread_and_values_whose_squares_are_beyond_all_numbers_are_compared() -> None:
    third = 0.1 + 0.2
    assert compared(folded((third, 0.3, 0.3), (0.1, 0.1, 0.1)), "min") == []
    (found,) = compared(folded((1e300, 1.1e300, 1.2e300), (5e300, 5.1e300, 5.2e300)), "min")
    assert found.significant
    assert found.difference == pytest.approx(4e300)


def test_a_run_that_has_not_finished_is_no_part_of_a_verdict(tmp_path: Path) -> None:
    statuses = ("running", "interrupted", "failed", "pruned", "refused")
    fake_runs.sweep(tmp_path / "sweep", {"lstm": (1.0, 1.1), "gpt": (2.0, 2.1)})
    for place, status in enumerate(statuses):
        fake_runs.run(tmp_path / "sweep" / f"00{4 + place}", 99.0, seed=3 + place, status=status)
    (found,) = conclusions(read([tmp_path / "sweep"]))
    assert next(variant for variant in found.variants if variant.name == "lstm").values == (1.0, 1.1)
    shown = ("interrupted", *statuses[1:])  # nobody trains it any more
    assert found.remarks == [f"does not count: sweep/00{4 + place} lstm: {each}" for place, each in enumerate(shown)]
