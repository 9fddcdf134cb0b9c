"""Laws of a verdict over folds: the same folds are paired, and overlapping training rows make no sure difference."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from scipy import stats

from seqtrain.compare import paper_table
from seqtrain.compare.comparisons import compared
from seqtrain.compare.entries import read
from seqtrain.compare.groups import groups
from seqtrain.compare.test_figures import tested as with_kept
from seqtrain.compare.variants import variants
from seqtrain.compare.verdict import conclusions
from seqtrain.runs.directory import Run
from seqtrain.runs.evaluations import Evaluation, keep
from tests.support import fake_runs

LSTM, GRU = (1.0, 2.0, 3.0, 4.0, 5.0), (1.1, 2.3, 3.1, 4.3, 5.2)


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
    linear = (1.3, 2.4, 3.2, 4.5, 5.1)
    (line,) = beside(tmp_path / "a", LSTM, linear)
    differences = [a - b for a, b in zip(LSTM, linear, strict=True)]
    half = stats.t.ppf(0.975, 4) * stats.tstd(differences) * (1 / 5 + 10 / 80) ** 0.5
    assert "linear has 3.3 (sd 1.5) on the same 5 folds: lstm is better by 0.3" in line
    assert f"{0.3 - half:.2g} to {0.3 + half:.2g}" in line
    assert "chance" not in line


def test_a_difference_to_a_baseline_that_may_be_chance_is_said_to_be_none(tmp_path: Path) -> None:
    line, warning = beside(tmp_path / "a", LSTM, (1.3, 1.8, 3.2, 3.9, 5.1))
    assert "no significant difference" in line
    assert warning == "no variant is significantly better than linear: the best is lstm"


def test_a_baseline_of_some_folds_is_not_held_against_all_of_them_and_that_is_said(tmp_path: Path) -> None:
    (line,) = beside(tmp_path / "a", LSTM, (1.3, None, 3.2, 4.5, 5.1))
    assert line == "linear is known of 4 of 5 folds, and so not held against lstm"


def test_baselines_of_a_fold_are_those_of_its_kept_evaluation_and_not_of_validation(tmp_path: Path) -> None:
    path = folds(tmp_path / "a", lstm=LSTM)
    for fold, value in enumerate((1.3, 2.4, 3.2, 4.5, 5.1)):
        measured = {"bits_per_byte": LSTM[fold]}
        baselines = {"linear": {"bits_per_byte": value}, "broken": {"bits_per_byte": math.nan}}
        date = "2026-01-01T00:00:00+00:00"
        keep(path / f"lstm{fold}", Evaluation("test", "best", 50, measured, "e" * 32, date, baselines=baselines))
    (found,) = conclusions(with_kept(read([path]), "best")[0])
    assert [note for note in found.caveats if "linear has 3.3 (sd 1.5) on the same 5 folds" in note]
    assert not [note for note in found.caveats if "broken" in note]
