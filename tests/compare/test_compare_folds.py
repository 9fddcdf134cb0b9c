"""Laws of a verdict over folds: folds are paired, also with baselines; shared training rows make no sure difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

from seqtrain.compare import paper_table
from seqtrain.compare.baselines import baselines
from seqtrain.compare.comparisons import compared
from seqtrain.compare.entries import read
from seqtrain.compare.groups import groups
from seqtrain.compare.held_out import with_results
from seqtrain.compare.records import group_records
from seqtrain.compare.variants import variants
from seqtrain.compare.verdict import Conclusion, conclusions
from seqtrain.runs.directory import Run
from tests.support import fake_runs

LSTM, GRU = (1.0, 2.0, 3.0, 4.0, 5.0), (1.1, 2.3, 3.1, 4.3, 5.2)
LINEAR = (1.3, 2.4, 3.2, 4.5, 5.1)


def folds(path: Path, whole: str = "w" * 32, **of_models: tuple[float, ...]) -> Path:
    for model, values in of_models.items():
        for fold, value in enumerate(values):
            own = f"{fold}" * 32
            fake_runs.run(
                path / f"{model}{fold}",
                value,
                model=model,
                config={"data.folds": len(values), "data.fold": fold, "data.fold_seed": 0},
                hashes={"train": own, "validation": own, "tokenizer": own},
                data={"fold": {"folds": len(values), "hash": whole, "train": 80, "validation": 10, "test": 20}},
            )
    return path


def test_folds_of_one_set_are_one_variant_and_paired_with_the_corrected_interval(tmp_path: Path) -> None:
    (group,) = groups(read([folds(tmp_path / "a", lstm=LSTM, gru=GRU)]))
    ranked = variants(group)
    assert [len(variant.values) for variant in ranked] == [5, 5]
    (found,) = compared(ranked, group.mode)
    differences = [b - a for a, b in zip(LSTM, GRU, strict=True)]
    error = stats.tstd(differences) * (1 / 5 + 10 / 80) ** 0.5
    half = stats.t.ppf(0.975, 4) * error
    assert (found.low, found.high) == pytest.approx((0.2 - half, 0.2 + half))
    naive = stats.ttest_rel(GRU, LSTM).confidence_interval()
    assert found.high - found.low > naive.high - naive.low


def test_the_verdict_says_folds_and_the_correction(tmp_path: Path) -> None:
    (found,) = conclusions(read([folds(tmp_path / "a", lstm=LSTM, gru=GRU)]))
    assert "the same 5 folds, corrected for the training rows they share" in found.sentences[0]
    table = paper_table.markdown(paper_table.tables([found]))
    assert "mean over folds" in table
    assert "corrected resampled t-test over folds" in table
    assert "seeds" not in table
    assert not any("seed" in line for line in found.sentences)


def test_folds_of_other_rows_stand_in_a_group_of_their_own(tmp_path: Path) -> None:
    folds(tmp_path / "a" / "one", lstm=LSTM)
    folds(tmp_path / "a" / "other", whole="v" * 32, gru=GRU)
    assert len(groups(read([tmp_path / "a"]))) == 2


def test_what_followed_from_the_rows_of_each_fold_does_not_part_the_folds(tmp_path: Path) -> None:
    for fold, steps in enumerate((90, 95, 90)):
        own = f"{fold}" * 32
        fake_runs.run(
            tmp_path / str(fold),
            1.0 + fold,
            config={"data.folds": 3, "data.fold": fold, "data.fold_seed": 0, "trainer.max_steps": steps},
            hashes={"train": own, "validation": own, "tokenizer": own},
            data={"fold": {"folds": 3, "hash": "w" * 32, "train": 80, "validation": 10, "test": 20}},
            from_data={"trainer.max_steps": steps},
        )
    (group,) = groups(read([tmp_path]))
    (variant,) = variants(group)
    assert list(variant.values) == [1.0, 2.0, 3.0]


def test_a_limit_that_was_changed_after_it_followed_from_the_data_is_a_setting(tmp_path: Path) -> None:
    for seed, steps in enumerate((90, 90, 200), 1):
        fake_runs.run(
            tmp_path / str(seed),
            1.0 + seed,
            seed=seed,
            config={"trainer.max_steps": steps},
            from_data={"trainer.max_steps": 90},
        )
    (group,) = groups(read([tmp_path]))
    assert sorted(len(variant.counted) for variant in variants(group)) == [1, 2]


def beside(path: Path, lstm: tuple[float, ...], linear: tuple[float | None, ...]) -> list[str]:
    """What is said beside the verdict of runs of folds, some of which have kept a baseline."""
    folds(path, lstm=lstm)
    for fold, value in enumerate(linear):
        run = Run(path / f"lstm{fold}")
        known = {} if value is None else {"linear": {"bits_per_byte": value}}
        summary = json.loads((run.path / "summary.json").read_text())
        (run.path / "summary.json").write_text(json.dumps(summary | {"baselines": {"validation": known}}))
    (found,) = conclusions(read([path]))
    return [note for note in found.caveats if "linear" in note]


def test_a_baseline_of_folds_is_one_line_with_the_paired_and_corrected_difference(tmp_path: Path) -> None:
    (line,) = beside(tmp_path / "a", LSTM, LINEAR)
    differences = [a - b for a, b in zip(LSTM, LINEAR, strict=True)]
    half = stats.t.ppf(0.975, 4) * stats.tstd(differences) * (1 / 5 + 10 / 80) ** 0.5
    assert "linear has 3.3 (sd 1.5) on the same 5 folds: lstm is better by 0.3" in line
    assert f"{0.3 - half:.2g} to {0.3 + half:.2g}" in line
    line, warning = beside(tmp_path / "chance", LSTM, (1.3, 1.8, 3.2, 3.9, 5.1))
    assert "no significant difference" in line
    assert warning == "no variant is significantly better than linear: the best is lstm"
    (line,) = beside(tmp_path / "some", LSTM, (1.3, None, 3.2, 4.5, 5.1))
    assert line == "linear is known for 4 of 5 folds, so it is not compared with lstm"


# -- baselines of kept evaluations -----------------------------------------------------------------------------------


def measured(path: Path, model: str, values: tuple[float, ...], linear: tuple[float, ...] | None) -> None:
    """Keeps what `evaluate --split test --baselines` does of each fold of a model."""
    folds(path, **{model: values})
    for fold, value in enumerate(values):
        known = {} if linear is None else {"linear": {"bits_per_byte": linear[fold]}}
        fake_runs.evaluated(path / f"{model}{fold}", value, baselines=known)


def concluded(path: Path) -> Conclusion:
    (found,) = conclusions(with_results(read([path]), "best")[0])
    return found


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
    measured(tmp_path / "a", "gru", tuple(value + 1 for value in LSTM), LSTM)
    found = concluded(tmp_path / "a")
    assert [each["name"] for each in group_records([found])[0]["baselines"]] == ["linear"]  # of both variants
    caveats = found.caveats
    assert any("lstm is no better, the same on each fold" in line for line in caveats)
    assert "no variant is significantly better than linear: the best is lstm" in caveats
    measured(tmp_path / "none", "lstm", LSTM, None)
    (line,) = [line for line in concluded(tmp_path / "none").caveats if "baselines" in line]
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


def test_baselines_of_folds_are_one_entry_with_the_mean_over_them(tmp_path: Path) -> None:
    measured(tmp_path / "a", "lstm", LSTM, LINEAR)
    entries = with_results(read([tmp_path / "a"]), "best")[0]
    (one,) = baselines(entries)
    assert (one["name"], one["runs"]) == ("linear", 5)
    assert one["values"]["bits_per_byte"] == pytest.approx(3.3)
