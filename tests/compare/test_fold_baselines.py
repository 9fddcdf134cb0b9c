"""Laws of baselines over folds: one line each, paired by fold, the best of them counts, and nothing is hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.compare.baselines import baselines
from seqtrain.compare.entries import read
from seqtrain.compare.records import group_records
from seqtrain.compare.test_figures import tested as with_kept
from seqtrain.compare.verdict import Conclusion, conclusions
from tests.compare.test_compare_folds import LSTM, folds
from tests.support import fake_runs

LINEAR = (1.3, 2.4, 3.2, 4.5, 5.1)


def measured(path: Path, model: str, values: tuple[float, ...], linear: tuple[float, ...] | None) -> None:
    """Keeps what `evaluate --split test --baselines` does of each fold of a model."""
    folds(path, **{model: values})
    for fold, value in enumerate(values):
        known = {} if linear is None else {"linear": {"bits_per_byte": linear[fold]}}
        fake_runs.evaluated(path / f"{model}{fold}", value, baselines=known)


def concluded(path: Path) -> Conclusion:
    (found,) = conclusions(with_kept(read([path]), "best")[0])
    return found


def test_baselines_of_folds_are_one_entry_with_the_mean_over_them(tmp_path: Path) -> None:
    measured(tmp_path / "a", "lstm", LSTM, LINEAR)
    entries = with_kept(read([tmp_path / "a"]), "best")[0]
    (one,) = baselines(entries)
    assert (one["name"], one["runs"]) == ("linear", 5)
    assert one["values"]["bits_per_byte"] == pytest.approx(3.3)


def test_a_baseline_that_two_variants_share_is_one_line(tmp_path: Path) -> None:
    measured(tmp_path / "a", "lstm", LSTM, LINEAR)
    measured(tmp_path / "a", "gru", tuple(value + 1 for value in LSTM), LINEAR)
    assert [each["name"] for each in group_records([concluded(tmp_path / "a")])[0]["baselines"]] == ["linear"]


def test_a_better_baseline_of_another_variant_is_held_against_the_best_one(tmp_path: Path) -> None:
    measured(tmp_path / "a", "lstm", LSTM, (1.3, 2.32, 3.28, 4.31, 5.3))
    better = (0.5, 1.4, 2.6, 3.5, 4.4)
    measured(tmp_path / "a", "gru", tuple(value + 1 for value in LSTM), better)
    found = concluded(tmp_path / "a")
    own, other = group_records([found])[0]["baselines"]
    assert own["low"] > 0
    assert other["name"] == "linear (of the runs of gru)"
    assert other["high"] < 0
    assert "no variant is significantly better than linear (of the runs of gru): the best is lstm" in found.caveats
    # The interval is of the side that is named.
    (line,) = [line for line in found.caveats if "has 2.48" in line]
    assert f"lstm is worse by 0.52 (95 % interval {-other['high']:.2g} to {-other['low']:.2g})" in line


def test_of_more_is_better_the_side_is_turned(tmp_path: Path) -> None:
    for fold, (value, linear) in enumerate(zip((0.7, 0.8, 0.9), (0.6, 0.68, 0.79), strict=True)):
        fake_runs.run(
            tmp_path / str(fold),
            value,
            metric="accuracy",
            config={"task._target_": "seqtrain.tasks.sentiment.Sentiment", "data.folds": 3}
            | {"data.fold": fold, "data.fold_seed": 0},
            data={"fold": {"folds": 3, "hash": "w" * 32, "train": 80, "validation": 10, "test": 20}},
            baselines={"validation": {"linear": {"accuracy": linear}}},
        )
    (found,) = conclusions(read([tmp_path]), metric="accuracy")
    (line,) = [line for line in found.caveats if line.startswith("linear")]
    assert "is better by 0.11 (95 % interval 0." in line


def test_the_same_figure_on_each_fold_is_no_better(tmp_path: Path) -> None:
    measured(tmp_path / "a", "lstm", LSTM, LSTM)
    caveats = concluded(tmp_path / "a").caveats
    assert any("lstm is no better, the same on each fold" in line for line in caveats)
    assert "no variant is significantly better than linear: the best is lstm" in caveats


def test_folds_without_baselines_say_so_and_what_makes_them(tmp_path: Path) -> None:
    measured(tmp_path / "a", "lstm", LSTM, None)
    (line,) = [line for line in concluded(tmp_path / "a").caveats if "baselines" in line]
    assert "`seqtrain evaluate RUN --split test --baselines`" in line


def test_baselines_of_test_are_those_of_the_kept_evaluation(tmp_path: Path) -> None:
    run = fake_runs.run(tmp_path / "run", 1.5, baselines={"validation": {"bigram": {"bits_per_byte": 1.0}}})
    fake_runs.evaluated(run, 1.6, baselines={"bigram": {"bits_per_byte": 2.0}})
    assert any("lstm (1.6) is better than bigram (2)" in line for line in concluded(tmp_path).caveats)
    fake_runs.evaluated(run, 1.6, baselines={"bigram": {"bits_per_byte": 1.1}})
    assert any("no variant is better than bigram (1.1)" in line for line in concluded(tmp_path).caveats)


def test_one_fold_alone_is_held_against_its_baselines_as_any_run(tmp_path: Path) -> None:
    measured(tmp_path / "a", "lstm", LSTM[:1], (0.5,))
    assert any("no variant is better than linear (0.5)" in line for line in concluded(tmp_path / "a").caveats)
