"""What a training says while it runs is of the step that it names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Seqtrain
from tests.support.tiny import corpus


@pytest.mark.long
def test_a_loss_of_training_that_is_of_an_earlier_step_says_so(tmp_path: Path, seqtrain: Seqtrain) -> None:
    corpus(tmp_path)
    data = ["data=text", "data.path=corpus.txt", "data.split_by=position", "tokenizer=byte"]
    words = [*data, "task=next_token", "model=rnn", "model.dim=8"]
    trainer = ["trainer.max_steps=6", "trainer.log_every=4", "trainer.validate_every=2", "logger=none", "run_dir=run"]
    answer = seqtrain("train", *words, *trainer, cwd=tmp_path)
    assert answer.rc == 0, answer.err
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (loss,) = [f"{record['train/loss']:.4f}" for record in records if "train/loss" in record]
    said = re.findall(r"^step (\d) of 6: train (.*), validation", answer.out + answer.err, re.MULTILINE)
    assert [step for step, _ in said] == ["2", "4", "6"]
    first, second, third = (words for _, words in said)
    assert first == "..."
    assert loss in second
    assert "at step" not in second
    assert loss in third
    assert third.endswith("at step 4")
