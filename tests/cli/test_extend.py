"""Laws of `seqtrain resume`: what it may change, what it refuses, and what it does with damaged files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support.tiny import OPTIONS, PATIENCE, assert_twins, corpus, newest_step, records, wait_until

TRAIN = ("train", *OPTIONS, "trainer.checkpoint_every=5")
CONSTANT = ("schedule=constant", "trainer.validate_every=10")


@pytest.fixture(scope="module")
def folder(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `finished`, a run of 20 steps; tests copy it before they change it."""
    folder = corpus(tmp_path_factory.mktemp("extend"))
    answer = seqtrain(*TRAIN, *CONSTANT, "trainer.max_steps=20", "run_dir=finished", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder


@pytest.fixture
def finished(folder: Path, tmp_path: Path) -> Path:
    """A copy of the run, in a folder with its text."""
    shutil.copy(folder / "corpus.txt", tmp_path)
    shutil.copytree(folder / "finished", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.long
def test_an_extended_run_equals_a_run_that_was_that_long_from_the_start(
    finished: Path, folder: Path, seqtrain: Seqtrain
) -> None:
    straight = seqtrain.start(*TRAIN, *CONSTANT, "trainer.max_steps=40", "run_dir=straight", cwd=folder)
    answer = seqtrain("resume", "run", "trainer.max_steps=40", cwd=finished.parent)
    assert answer.rc == 0, answer.err
    assert "trainer.max_steps: 20 -> 40\n" in answer.err
    assert straight.wait(PATIENCE) == 0, straight.stderr
    assert_twins(folder / "straight", finished)
    assert Run(finished).config["trainer"]["max_steps"] == 40


@pytest.mark.long
def test_from_the_extension_on_the_schedule_is_that_of_the_longer_run(seqtrain: Seqtrain, tmp_path: Path) -> None:
    corpus(tmp_path)
    cosine = (*TRAIN, "schedule=cosine", "schedule.warmup=2", "trainer.validate_every=10")
    straight = seqtrain.start(*cosine, "trainer.max_steps=20", "run_dir=straight", cwd=tmp_path)
    assert seqtrain(*cosine, "trainer.max_steps=10", "run_dir=run", cwd=tmp_path).rc == 0
    assert seqtrain("resume", "run", "trainer.max_steps=20", cwd=tmp_path).rc == 0
    assert straight.wait(PATIENCE) == 0
    rates = [
        {record["step"]: record["lr"] for record in records(tmp_path / name) if "lr" in record}
        for name in ("run", "straight")
    ]
    assert [rates[0][step] for step in range(11, 21)] == [rates[1][step] for step in range(11, 21)]
    assert rates[0][10] < rates[1][10], "the first ten steps were planned as the whole"


def test_a_text_that_has_changed_is_refused(finished: Path, seqtrain: Seqtrain) -> None:
    with (finished.parent / "corpus.txt").open("a") as file:
        file.write("one more line\n")
    answer = seqtrain("resume", "run", "trainer.max_steps=40", cwd=finished.parent)
    assert answer.rc == 2
    assert "text is not the one that run run began with" in answer.err


@pytest.mark.long
def test_two_processes_never_write_one_run(seqtrain: Seqtrain, tmp_path: Path) -> None:
    corpus(tmp_path)
    first = seqtrain.start(*TRAIN, "trainer.max_steps=5000", "run_dir=run", cwd=tmp_path)
    wait_until(lambda: newest_step(tmp_path / "run") > 5, first, "step 6")
    second = seqtrain("resume", "run", cwd=tmp_path)
    assert second.rc == 2
    assert second.err == "error: run run is being written by another process: wait for it or stop it\n"
    again = seqtrain(*TRAIN, "run_dir=run", cwd=tmp_path)
    assert again.rc == 2
    assert "run_dir=run exists already: `seqtrain resume run` continues it" in again.err
    first.kill()
    assert first.wait(PATIENCE) == -9, "it went on undisturbed"
    assert not any("resumed_from" in line for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())


def test_a_damaged_newest_checkpoint_is_skipped_and_costs_only_time(
    finished: Path, folder: Path, seqtrain: Seqtrain
) -> None:
    newest = finished / "checkpoints" / "step-00000020.ckpt"
    flip(newest)
    Run(finished).update_summary(status="interrupted")
    answer = seqtrain("resume", "run", cwd=finished.parent)
    assert answer.rc == 0, answer.err
    assert "skipped run/checkpoints/step-00000020.ckpt: it was cut short or changed on disk" in answer.err
    assert "resumed from step 15" in answer.err
    assert_twins(folder / "finished", finished)


def test_a_process_killed_before_it_named_its_checkpoint_the_best_names_it_when_resumed(
    finished: Path, folder: Path, seqtrain: Seqtrain
) -> None:
    assert Run(finished).summary.best["step"] == 20
    (finished / "checkpoints" / "best.ckpt").unlink()
    Run(finished).update_summary(status="running")
    assert seqtrain("resume", "run", cwd=finished.parent).rc == 0
    assert_twins(folder / "finished", finished)


def test_a_run_without_a_sound_checkpoint_is_refused(finished: Path, seqtrain: Seqtrain) -> None:
    for path in (finished / "checkpoints").glob("step-*.ckpt"):
        flip(path)
    answer = seqtrain("resume", "run", "trainer.max_steps=40", cwd=finished.parent)
    assert answer.rc == 2
    assert (
        "error: run run: no checkpoint is sound; move run/checkpoints/step-*.ckpt elsewhere to begin again"
        in answer.err
    )


@pytest.mark.long
def test_a_run_that_early_stopping_ended_is_not_extended(seqtrain: Seqtrain, tmp_path: Path) -> None:
    corpus(tmp_path)
    values = ("callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=9")
    stopping = ("callbacks=early_stopping", *values, "trainer.validate_every=5")
    answer = seqtrain(*TRAIN, *stopping, "trainer.max_steps=40", "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert Run(tmp_path / "run").summary.steps == 10
    answer = seqtrain("resume", "run", "trainer.max_steps=80", cwd=tmp_path)
    assert answer.rc == 2
    assert "early stopping ended it at step 10" in answer.err


def flip(path: Path) -> None:
    """Changes one bit in the middle of a file; `best.ckpt` may be the same file, so it is replaced."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    os.sync()
