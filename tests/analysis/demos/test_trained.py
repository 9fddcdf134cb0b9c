"""Demonstrations from end to end, with trainings of a few steps: what they measure is what the runs have recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seqtrain
from seqtrain.analysis import demo
from seqtrain.analysis.demo import Bench, Findings
from seqtrain.analysis.demos import last_state, teacher_forcing
from seqtrain.data.sources.seasonal import KEPT
from seqtrain.runs.directory import Run

NOISE = 0.3  # of data=seasonal


def bench(out: Path) -> Bench:
    """Trains as a demonstration asks, for three steps."""

    def train(name: str, *overrides: str) -> Path:
        path = out / "runs" / name
        words = []
        for word in overrides:
            key = word.partition("=")[0]
            words.append(f"{key}=3" if key in ("trainer.max_steps", "trainer.validate_every") else word)
        seqtrain.train(*words, f"run_dir={path}", "logger=none")
        return path

    return Bench(out, train, lambda line: None, 1)


def shown(name: str, out: Path) -> Findings:
    found = demo.load(name).run(bench(out))
    assert found.rows
    assert found.holds is None  # of one seed
    for picture in found.pictures:
        assert (out / picture).stat().st_size > 1000
    return found


def metrics(path: Path) -> dict[str, Any]:
    return Run.open(path).summary.metrics["validation"]


@pytest.mark.long
def test_last_state_has_equal_parameters_and_says_what_each_length_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_state, "NUM_TRAIN", 400)
    monkeypatch.setattr(last_state, "NUM_PER_LENGTH", 4)
    found = shown("last-state", tmp_path)
    assert found.numbers["none_parameters"] == pytest.approx(found.numbers["additive_parameters"], rel=0.02)
    lengths = range(last_state.SHORTEST, last_state.LONGEST + 1)
    assert [row["length"] for row in found.rows] == list(map(str, lengths))


@pytest.mark.long
def test_series_are_measured_as_the_runs_themselves_say(tmp_path: Path) -> None:
    train = bench(tmp_path).train
    recursive = train("recursive", *teacher_forcing.SERIES, "task.strategy=recursive")
    direct = train("direct", *teacher_forcing.SERIES, "task.strategy=direct")
    curves = teacher_forcing.series_curves(recursive, direct, lambda line: None)
    for name, path in (("free", recursive), ("direct", direct)):
        mean = sum(curves[name]) / len(curves[name])
        assert mean == pytest.approx(metrics(path)["mse_original"], rel=1e-5)
    # One step ahead nothing has been fed back yet.
    assert curves["free"][0] == pytest.approx(curves["forced"][0], rel=1e-5)
    assert curves["free"][1] != pytest.approx(curves["forced"][1], rel=1e-3)
    # The noise of an AR(1) process: what cannot be known after h steps is its variance times 1 - 0.8**(2 h).
    for step in (0, 1, 5, 23):
        unknown = NOISE**2 * (1 - KEPT ** (2 * (step + 1)))
        assert curves["best_free"][step] == pytest.approx(unknown, rel=0.15)
    assert curves["best_forced"][23] == pytest.approx(NOISE**2 * (1 - KEPT**2), rel=0.05)


@pytest.mark.long
def test_text_that_has_not_left_the_truth_is_the_same_fed_either_way(tmp_path: Path) -> None:
    path = bench(tmp_path).train("text", *teacher_forcing.TEXT)
    curves = teacher_forcing.text_curves(path, lambda line: None)
    assert curves["free"][0] == curves["forced"][0] == curves["unbroken"][0]
    pairs = zip(curves["unbroken"], curves["unbroken"][1:], strict=False)
    assert all(later <= before for before, later in pairs)
    for free, unbroken in zip(curves["free"], curves["unbroken"], strict=True):
        assert unbroken <= free


@pytest.mark.long
@pytest.mark.parametrize("name", ["decoder-only", "lstm-gru", "teacher-forcing"])
def test_a_demonstration_of_one_seed_ends_without_a_verdict(name: str, tmp_path: Path) -> None:
    assert "one seed, no verdict" in shown(name, tmp_path).verdict


@pytest.mark.long
def test_models_said_to_have_equal_parameters_have_them(tmp_path: Path) -> None:
    found = shown("lstm-gru", tmp_path / "cells").numbers
    for task in ("text", "adding"):
        assert found[f"{task}_lstm_parameters"] == pytest.approx(found[f"{task}_gru_parameters"], rel=0.02)
    found = shown("decoder-only", tmp_path / "decoders").numbers
    whole = found["encoder_decoder_parameters"]
    assert found["gpt_equal_parameters"] == pytest.approx(whole, rel=0.02)
    assert found["gpt_half_parameters"] == pytest.approx(whole / 2, rel=0.02)
