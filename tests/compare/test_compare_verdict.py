"""A verdict is honest: chance is called chance, a real difference is found, and the words promise no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.compare.entries import read
from seqtrain.compare.paired_bootstrap import bootstrap
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import compared, conclusions, quantity, welch
from tests.support import fake_runs

TIMES, SEEDS, EXAMPLES = 1000, 3, 300
SEED_SD, EXAMPLE_SD = 0.05, 0.25


def folded(*values: Any) -> list[Variant]:
    """Variants of these values, the smallest mean first."""
    fake_runs = [Variant(f"variant{place}", (), (), tuple(map(float, own)), {}) for place, own in enumerate(values)]
    return sorted(fake_runs, key=lambda variant: variant.mean or 0.0)


def losses(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Losses (*shape, examples) of runs that are equal: each has its seed's luck, and each example its own."""
    luck = rng.normal(1.0, SEED_SD, shape)[..., None]
    return luck + rng.normal(0.0, EXAMPLE_SD, (*shape, EXAMPLES))


def means(rng: np.random.Generator, num_arms: int) -> np.ndarray:
    """(comparisons, variants, seeds): mean losses over examples, drawn as such."""
    sd = (SEED_SD**2 + EXAMPLE_SD**2 / EXAMPLES) ** 0.5
    return rng.normal(1.0, sd, (TIMES, num_arms, SEEDS))


@pytest.mark.parametrize("num_arms", [2, 4])
def test_of_equal_arms_at_most_one_comparison_in_twenty_calls_any_different(num_arms: int) -> None:
    called = [
        any(fake_runs.significant for fake_runs in compared(folded(*each), "min"))
        for each in means(np.random.default_rng(0), num_arms)
    ]
    assert np.mean(called) <= 0.05
    assert np.mean(called) > 0  # it can be led astray, and is not merely silent


def test_a_real_difference_is_found() -> None:
    better = means(np.random.default_rng(1), 2)
    sd = better.std()
    better[:, 0] -= 4 * sd
    found = [compared(folded(*each), "min")[0] for each in better]
    assert np.mean([fake_runs.significant and fake_runs.best.name == "variant0" for fake_runs in found]) > 0.8
    assert np.mean([fake_runs.low <= 4 * sd <= fake_runs.high for fake_runs in found]) >= 0.95


def test_a_bootstrap_over_examples_calls_equal_arms_different() -> None:
    rng = np.random.default_rng(2)
    called = []
    for _ in range(20):  # one seed of each, or their mean: examples say nothing of how another seed would have done
        one, other = ([{"loss": (loss, 1.0)} for loss in losses(rng, SEEDS).mean(0)] for _ in range(2))
        _, low, high = bootstrap(one, other, lambda totals: totals["loss"][0] / totals["loss"][1])
        called.append(low > 0 or high < 0)
    assert np.mean(called) > 0.3


def test_the_interval_is_welchs() -> None:
    stats = pytest.importorskip("scipy.stats")
    one, other = (1.5, 1.62, 1.54), (1.7, 1.9, 1.71, 2.05)
    expected = stats.ttest_ind(other, one, equal_var=False).confidence_interval(0.95)
    assert welch(one, other) == pytest.approx(tuple(expected))
    pairs = stats.ttest_ind(other, one, equal_var=False).confidence_interval(1 - 0.05 / 6)
    assert welch(one, other, pairs=6) == pytest.approx(tuple(pairs))


def test_the_interval_of_an_arm_is_students() -> None:
    stats = pytest.importorskip("scipy.stats")
    (variant,) = folded((1.5, 1.62, 1.54))
    assert variant.interval == pytest.approx(stats.ttest_1samp(variant.values, 0).confidence_interval(0.95))


def test_the_best_of_several_is_held_to_all_pairs_that_might_have_been_chosen() -> None:
    alone = compared(folded((1.0, 1.1, 1.2), (1.3, 1.4, 1.5)), "min")[0]
    among = compared(folded((1.0, 1.1, 1.2), (1.3, 1.4, 1.5), (1.31, 1.4, 1.5), (1.32, 1.4, 1.5)), "min")[0]
    assert among.low < alone.low
    assert among.high > alone.high
    assert [welch((1.0, 1.1, 1.2), (1.3, 1.4, 1.5), pairs=pairs) for pairs in (1, 6)] == [
        pytest.approx((alone.low, alone.high)),
        pytest.approx((among.low, among.high)),
    ]


# -- in words ----------------------------------------------------------------------------------------------------


def verdict(path: Path, final: dict[str, tuple[float, ...]], **options: Any) -> list[str]:
    """The sentences on a sweep of these values."""
    ask = {name: options.pop(name) for name in ("x", "checkpoint") if name in options}
    (found,) = conclusions(read([fake_runs.sweep(path / "sweep", final, **options)]), **ask)
    return found.sentences


def test_a_difference_that_is_shown_is_said_with_its_interval_and_cost(tmp_path: Path) -> None:
    (said,) = verdict(tmp_path, {"gpt": (1.62, 1.64, 1.63), "lstm": (1.5, 1.51, 1.52)}, values=(3.0,))
    assert said == (
        "lstm beats gpt by 0.120 bits per byte (95 % interval 0.097 to 0.143, 3 seeds each) after 2k tokens each"
    )


def test_more_is_said_to_beat_less_where_more_is_better(tmp_path: Path) -> None:
    values = {"gpt": (20.0, 21.0, 22.0), "lstm": (30.0, 31.0, 32.0)}
    said = verdict(tmp_path, values, metric="bleu", monitor=["bleu", "max"], config=fake_runs.TRANSLATION)
    assert said[0].startswith("lstm beats gpt by 10.0 BLEU (95 % interval 7.7 to 12.3")


def test_a_difference_that_chance_explains_is_not_shown(tmp_path: Path) -> None:
    (said,) = verdict(tmp_path, {"lstm": (1.4, 1.5, 1.6), "gpt": (1.42, 1.52, 1.62)})
    assert said.startswith(
        "not shown: lstm 1.500, gpt 1.520 bits per byte, difference 0.020 (95 % interval -0.21 to 0.25"
    )


def test_one_seed_each_never_beats(tmp_path: Path) -> None:
    (said,) = verdict(tmp_path, {"lstm": (1.0,), "gpt": (9.0,)})
    assert said == "not shown: lstm 1.000, gpt 9.000 bits per byte: one seed each; 3 seeds would be a start"


def test_an_arm_of_one_seed_is_no_part_of_the_others_verdict(tmp_path: Path) -> None:
    both, alone = verdict(tmp_path, {"lstm": (1.0, 1.01), "gru": (3.0, 3.01), "gpt": (0.5,)})
    assert both.startswith("lstm beats gru")
    assert "pairs" not in both
    assert alone.startswith("not shown: how gpt 0.5000 bits per byte would do with other seeds")


def test_the_best_of_several_is_said_to_hold_over_all_pairs(tmp_path: Path) -> None:
    said = verdict(tmp_path, {"lstm": (1.0, 1.01), "gru": (3.0, 3.01), "gpt": (5.0, 5.01)})
    assert [line.partition(" by ")[0] for line in said] == ["lstm beats gru", "lstm beats gpt"]
    assert all("(95 % interval over all 3 pairs 1" in line or "over all 3 pairs 3" in line for line in said)


def test_of_many_arms_of_one_seed_the_first_four_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    for number in range(6):
        fake_runs.run(tmp_path / f"{number}", 1.0 + number, config={"model.dim": 8 + number})
    (found,) = conclusions(read([tmp_path]))
    named = "lstm dim=8 1.000, lstm dim=9 2.000, lstm dim=10 3.000, lstm dim=11 4.000 and 2 more bits per byte"
    assert found.sentences == [f"not shown: {named}: one seed each; 3 seeds would be a start"]


def test_values_are_told_however_wide_the_interval_is(tmp_path: Path) -> None:
    (said,) = verdict(tmp_path, {"lstm": (1.0, 9.0), "gpt": (1.3, 9.4)})
    assert said.startswith("not shown: lstm 5.000, gpt 5.350 bits per byte, difference 0.350 (95 % interval -24 to 25")


def test_an_arm_that_stands_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    (said,) = verdict(tmp_path, {"lstm": (1.5, 1.6)})
    assert said == "not shown: lstm 1.550 bits per byte stands alone: no other variant has a value to compare it with"
    fake_runs.run(tmp_path / "begun" / "0", status="failed")
    (found,) = conclusions(read([tmp_path / "begun"]))
    assert found.sentences == ["not shown: no finished run has bits per byte of validation"]


@pytest.mark.parametrize("other", [1.5, 1.7])
def test_seeds_that_all_give_one_number_show_nothing(tmp_path: Path, other: float) -> None:
    (said,) = verdict(tmp_path, {"lstm": (1.5, 1.5, 1.5), "gpt": (other, other, other)})
    assert said.startswith("not shown")
    assert "same number" in said


def test_rounding_is_no_spread() -> None:
    third = 0.1 + 0.2
    assert compared(folded((third, 0.3, 0.3), (0.1, 0.1, 0.1)), "min") == []


def test_values_whose_squares_are_beyond_all_numbers_are_compared() -> None:
    (found,) = compared(folded((1e300, 1.1e300, 1.2e300), (5e300, 5.1e300, 5.2e300)), "min")
    assert found.significant
    assert found.difference == pytest.approx(4e300)


@pytest.mark.parametrize("status", ["running", "interrupted", "failed", "pruned", "refused"])
def test_a_run_that_has_not_finished_is_no_part_of_a_verdict(tmp_path: Path, status: str) -> None:
    fake_runs.sweep(tmp_path / "sweep", {"lstm": (1.0, 1.1), "gpt": (2.0, 2.1)})
    fake_runs.run(tmp_path / "sweep" / "004", 99.0, seed=3, status=status)
    (found,) = conclusions(read([tmp_path / "sweep"]))
    assert next(variant for variant in found.variants if variant.name == "lstm").values == (1.0, 1.1)
    shown = "interrupted" if status == "running" else status  # nobody trains it any more
    assert found.remarks == [f"does not count: sweep/004 lstm: {shown}"]


def test_a_quantity_is_rounded_before_it_gets_its_letter() -> None:
    assert [quantity(value) for value in (999_700, 999_400, 12, 1.5e9, 9.999e11, 2e12)] == [
        *("1M", "999k", "12", "1.5G", "1e+12", "2e+12")
    ]
