"""What a training says of its steps while it runs: losses of the step they name, and the time of their parts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seqtrain.training.callbacks.step_profile import PARTS, SKIPPED, TIMED, TRACED
from tests.conftest import Seqtrain
from tests.journeys.walk import SMALL, Walk, assert_twins
from tests.support.tiny import corpus

STEPS = SKIPPED + TIMED + TRACED
WORDS = (
    *(word for word in SMALL if not word.startswith(("trainer.max_steps", "trainer.validate_every"))),
    *("trainer.validate_every=6", "task=tag", "model=gru", "data=person_or_place", "data.size=200"),
    *("data.batch_tokens=96", "trainer.accumulate=2"),
)


def test_parts_of_steps_are_timed_and_traced_and_no_bit_changes(seqtrain: Seqtrain, tmp_path: object) -> None:
    walk = Walk(seqtrain, tmp_path)  # type: ignore[arg-type]
    plain = walk.train("plain", *WORDS, f"trainer.max_steps={STEPS}")
    answer = seqtrain(
        "train", *WORDS, f"trainer.max_steps={STEPS}", "trainer.profile=steps", "run_dir=timed", cwd=walk.folder
    )
    assert answer.rc == 0, answer.err
    assert_twins(plain, walk.folder / "timed")
    found = json.loads((walk.folder / "timed/profile/steps.json").read_text())
    assert found["steps"] == TIMED
    assert list(found["seconds"]) == list(PARTS)
    assert all(seconds > 0 for seconds in found["seconds"].values())
    assert sum(found["seconds"].values()) * TIMED < answer.seconds
    trace = json.loads((walk.folder / "timed/profile/trace.json").read_text())
    assert sum(event["name"].startswith("Optimizer.step") for event in trace["traceEvents"]) == TRACED
    assert "profile: a step takes" in answer.err


def test_a_training_that_ends_before_its_steps_are_timed_says_so(seqtrain: Seqtrain, tmp_path: object) -> None:
    words = (*WORDS, "trainer.profile=steps")
    for steps, says in {SKIPPED: "profile: nothing was timed", SKIPPED + 2: "the mean of 2"}.items():
        answer = seqtrain("train", *words, f"trainer.max_steps={steps}", f"run_dir=run-{steps}", cwd=tmp_path)  # type: ignore[arg-type]
        assert says in answer.err


def test_a_run_from_before_an_option_existed_is_read_and_resumed(seqtrain: Seqtrain, tmp_path: object) -> None:
    walk = Walk(seqtrain, tmp_path)  # type: ignore[arg-type]
    run = walk.train("old", *WORDS, "trainer.max_steps=6")
    figures = walk.evaluate("old", "validation")
    config = (run / "config.yaml").read_text().splitlines(keepends=True)
    older = [line for line in config if not line.strip().startswith("profile:")]
    assert len(older) == len(config) - 1
    (run / "config.yaml").write_text("".join(older))
    assert walk.evaluate("old", "validation") == figures
    walk.type("resume", "old", "trainer.max_steps=12")


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
    assert first == "loss pending"
    assert loss in second
    assert "at step" not in second
    assert loss in third
    assert third.endswith("at step 4")
