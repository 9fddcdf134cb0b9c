"""Laws of `seqtrain resume`: what it may change, what it refuses, and what it does with damaged files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support.tiny import OPTIONS, PATIENCE, assert_twins, corpus, records

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


def test_a_process_killed_before_it_named_its_checkpoint_the_best_names_it_when_resumed(
    finished: Path, folder: Path, seqtrain: Seqtrain
) -> None:
    assert Run(finished).summary.best["step"] == 20
    (finished / "checkpoints" / "best.ckpt").unlink()
    Run(finished).update_summary(status="running")
    assert seqtrain("resume", "run", cwd=finished.parent).rc == 0
    assert_twins(folder / "finished", finished)
