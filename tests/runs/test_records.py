"""Laws of what a run leaves behind, however it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrain.runs.checkpoint import load, newest_valid
from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support import user
from tests.support.tiny import OPTIONS, corpus

STEPS, EVERY, LANES, TIME = 25, 10, 4, 8
TRAIN = ("train", *OPTIONS, "trainer.checkpoint_every=5")


@pytest.fixture(scope="module")
def run(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run with samples, curves and a sparse record."""
    folder = corpus(tmp_path_factory.mktemp("records"))
    options = ("callbacks=default", "callbacks.samples.prompt=line", "callbacks.samples.length=30")
    limits = (f"trainer.max_steps={STEPS}", f"trainer.validate_every={EVERY}", "trainer.log_every=5")
    answer = seqtrain(*TRAIN, *options, *limits, "run_dir=run", cwd=folder)
    assert answer.rc == 0, answer.err
    return Run(folder / "run")


@pytest.mark.long
def test_every_point_says_its_step_epoch_tokens_and_seconds(run: Run) -> None:
    points = run.metrics()
    assert [(point["step"], "train/loss" in point) for point in points] == [
        *((5, True), (10, True), (10, False), (15, True), (20, True), (20, False), (25, True), (25, False))
    ]
    for point in points:
        assert point["tokens"] == point["step"] * LANES * TIME
        assert point["epoch"] == pytest.approx(point["tokens"] / train_tokens(run), abs=0.005)
    seconds = [point["seconds"] for point in points]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def train_tokens(run: Run) -> int:
    """Characters of the training text."""
    return int(len((run.path.parent / "corpus.txt").read_text()) * 0.85)


def test_a_training_point_is_the_mean_since_the_one_before(run: Run, seqtrain: Seqtrain) -> None:
    folder = run.path.parent
    limits = (f"trainer.max_steps={EVERY}", f"trainer.validate_every={EVERY}", "trainer.log_every=1")
    assert seqtrain(*TRAIN, *limits, "schedule.warmup=50", "run_dir=dense", cwd=folder).rc == 0
    dense = {point["step"]: point["train/loss"] for point in Run(folder / "dense").metrics() if "train/loss" in point}
    first = next(point for point in run.metrics() if point["step"] == 5)
    assert first["train/loss"] == pytest.approx(sum(dense[step] for step in range(1, 6)) / 5, rel=1e-6)


def test_the_summary_says_what_was_done_with_what_and_how_well(run: Run) -> None:
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["command"][:3] == ["seqtrain", "train", "data=text"]
    assert (summary["steps"], summary["tokens"]) == (STEPS, STEPS * LANES * TIME)
    assert summary["seconds"] >= run.metrics()[-1]["seconds"]
    speeds = [point["tokens_per_second"] for point in run.metrics() if "tokens_per_second" in point]
    assert summary["tokens"] / summary["seconds"] <= max(speeds), "all of training is in the seconds"
    assert summary["parameters"]["total"] == sum(
        count for part, count in summary["parameters"].items() if part != "total"
    )
    assert set(summary["versions"]) >= {"python", "torch", "pytorch-lightning", "hydra-core", "seqtrain"}
    assert set(summary["hashes"]) == {"train", "validation", "tokenizer"}
    assert set(summary["baselines"]["validation"]) == {"uniform", "unigram", "bigram", "xz", "xz_given_train"}
    validations = [point for point in run.metrics() if "validation/loss" in point]
    assert summary["metrics"]["validation"]["loss"] == validations[-1]["validation/loss"]
    best = min(validations, key=lambda point: point["validation/loss"])
    assert summary["best"]["step"] == best["step"]
    assert summary["best"]["validation"]["bits_per_byte"] == best["validation/bits_per_byte"]


def test_there_is_a_picture_and_a_sample_of_each_validation(run: Run) -> None:
    assert (run.plots / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    samples = {path.name: path.read_text() for path in run.samples.glob("*.txt")}
    assert sorted(samples) == ["step-00000010.txt", "step-00000020.txt", "step-00000025.txt"]
    assert all(len(text) >= len("line") + 30 and text.startswith("line") for text in samples.values())


@pytest.mark.long
def test_a_secret_of_a_logger_is_in_no_file_of_the_run_and_the_run_is_resumed(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    environment = user.package(corpus(tmp_path)) | {"MY_KEY": "hidden-3"}
    mine = ("logger=mine", "logger.mine.uri=http://me:hidden-1@host/x")
    args = (*TRAIN, *user.TRUST, *user.OPTIONS, *mine, "trainer.max_steps=2")
    typed = seqtrain(*args, "logger.mine.api_key=hidden-2", "run_dir=typed", cwd=tmp_path, env={**environment})
    kept = seqtrain(*args, "logger.mine.api_key=${oc.env:MY_KEY}", "run_dir=kept", cwd=tmp_path, env={**environment})
    assert (typed.rc, kept.rc) == (0, 0), typed.err + kept.err
    assert "logger.mine.api_key: its secret is not saved with the run; for a resume" in typed.err
    for name, trust in (("typed", ()), ("kept", ("--trust", "oc.env"))):
        longer = ("resume", name, *user.TRUST, *trust, "trainer.max_steps=3")
        assert seqtrain(*longer, cwd=tmp_path, env={**environment}).rc == 0
        for path in (tmp_path / name).rglob("*"):
            assert not path.is_file() or b"hidden-" not in path.read_bytes(), path


# -- runs that fail ----------------------------------------------------------------------------------------------


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_last_good_checkpoint(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    environment: dict[str, Any] = user.package(corpus(tmp_path))
    args = (*TRAIN, *user.TRUST, *user.OPTIONS, "trainer.max_steps=30", "run_dir=run")
    answer = seqtrain(*args, "model.sound=12", cwd=tmp_path, env=environment)
    assert answer.rc == 1
    (line,) = [line for line in answer.err.splitlines() if "rror" in line]
    assert line.startswith("error: the loss is nan at step 13; the last good checkpoint is step-00000010.ckpt")
    run = Run(tmp_path / "run")
    assert run.summary.status == "failed"
    assert run.summary.reason == "the loss is nan at step 13"
    assert [point["step"] for point in run.metrics()] == list(range(1, 13))
    assert newest_valid(run.checkpoints, pytest.fail) == run.checkpoints / "step-00000010.ckpt"
    read = seqtrain("predict", "run", *user.TRUST, "--length", "3", cwd=tmp_path, env=environment)
    assert read.rc == 0, read.err


@pytest.mark.long
def test_no_checkpoint_ever_holds_a_weight_that_is_no_number(seqtrain: Seqtrain, tmp_path: Path) -> None:
    corpus(tmp_path)
    # Weight decay multiplies by -1e8 a step; an LSTM bears it, with a finite loss, until the weights overflow.
    wild = ("optimizer.lr=1e10", "trainer.precision=32-true")
    limits = ("schedule=constant", "trainer.checkpoint_every=1", "trainer.max_steps=30")
    answer = seqtrain(*TRAIN, *wild, *limits, "run_dir=run", cwd=tmp_path)
    assert answer.rc == 1
    assert answer.err.count("error: ") == 1
    run = Run(tmp_path / "run")
    assert run.summary.status == "failed"
    for path in run.checkpoints.iterdir():
        weights = load(path)["state_dict"].values()
        assert all(torch.isfinite(weight).all() for weight in weights), path
