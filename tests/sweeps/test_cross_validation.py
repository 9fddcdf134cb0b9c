"""Laws of a cross-validation: each finished fold has the figure of its own rows, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Seqtrain

OPTIONS = ("model=cbow", "model.dim=8", "trainer.max_steps=2", "trainer.accelerator=cpu", "logger=none")


@pytest.mark.long
def test_folds_that_a_killed_sweep_left_unmeasured_are_measured_by_a_resume(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows = [f"word{n % 7} text{n}\t{'ab'[n % 2]}" for n in range(40)]
    (tmp_path / "a.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    words = ("task=sentiment", "data=labelled", "data.path=a.tsv", "data.folds=2", "hydra.sweep.dir=sweep")
    answer = seqtrain("train", *words, *OPTIONS, "--json", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert [json.loads(line)["status"] for line in answer.out.splitlines()] == ["finished"] * 2
    kept = [tmp_path / f"sweep/00{fold}/evaluations.jsonl" for fold in range(2)]
    before = [json.loads(path.read_text()) for path in kept]  # measured with --json, too

    kept[1].unlink()  # what a kill between the last training and its measuring leaves
    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert (answer.rc, "accuracy of test" in answer.out) == (0, True), answer.err
    after = [json.loads(path.read_text()) for path in kept]
    assert after[0] == before[0]
    assert after[1]["metrics"] == before[1]["metrics"]

    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert (answer.rc, "nothing to do, every trial has ended" in answer.err) == (2, True), answer.err


def test_data_without_folds_is_refused_in_one_line(tmp_path: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain("train", "task=translation", "data=parallel", "data.path=a.tsv", "data.folds=3", cwd=tmp_path)
    assert (answer.rc, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("error: data.folds=3: data=parallel has no folds; ")
