"""Laws of resuming: a run that was killed anywhere and resumed ends with the bits of its uninterrupted twin."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kills.__main__ import available, campaign
from benchmarks.kills.campaign import Campaign
from benchmarks.kills.kinds import Kind
from tests.conftest import Seqtrain
from tests.support import examples
from tests.support.tiny import GPT, OPTIONS, PATIENCE, assert_twins, corpus, newest_step, wait_until

STREAM = (*OPTIONS, "data.validation_fraction=0.3", "trainer.validate_every=8")
KINDS = {
    "lstm, early stopping": (
        *(*STREAM, "model=lstm", "model.num_layers=2", "model.dropout=0.3"),
        *("callbacks=early_stopping", "callbacks.samples.length=5", "callbacks.curves=null"),
        *("callbacks.early_stopping.patience=7", "callbacks.early_stopping.min_delta=9"),
    ),
    "sentiment, micro-batches": (
        *(*examples.options("sentiment"), "task.dropout=0.2", "task.class_weights=balanced"),
        *("data.batch_size=5", "trainer.accumulate=4", "trainer.validate_every=1000"),
    ),
    "gpt, bf16": (*STREAM, *GPT, "model.dropout=0.1", "optimizer=muon", "trainer.precision=bf16-mixed"),
}
QUICK = "lstm, early stopping", "sentiment, micro-batches"


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in KINDS]
)
def test_a_killed_and_resumed_run_ends_with_the_bits_of_its_uninterrupted_twin(
    name: str, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    examples.files(corpus(tmp_path))
    args = ("train", *KINDS[name], "trainer.max_steps=60", "trainer.checkpoint_every=4")
    twin = seqtrain.start(*args, "run_dir=twin", cwd=tmp_path)
    child, chance = seqtrain.start(*args, "run_dir=run", cwd=tmp_path), random.Random(name)
    for number in (1, 2, 3):
        step = chance.randint(14 * number - 9, 14 * number)
        wait_until(lambda step=step: newest_step(tmp_path / "run") >= step, child, f"step {step}")
        time.sleep(chance.random() * 0.01)
        child.kill()
        assert child.wait(PATIENCE) == -9, child.stderr
        child = seqtrain.start("resume", "run", cwd=tmp_path)
    assert child.wait(PATIENCE) == 0, child.stderr
    assert twin.wait(PATIENCE) == 0, twin.stderr
    assert_twins(tmp_path / "twin", tmp_path / "run")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with campaign(tmp_path_factory.mktemp("kills"), seed=2) as place:
        yield place


@pytest.mark.long
@pytest.mark.parametrize("kind", available(""), ids=lambda kind: kind.name)
def test_a_run_of_any_kind_killed_at_any_moment_ends_as_its_twin(kind: Kind, place: Campaign) -> None:
    """Kill a run of each kind between file events; `make kills` makes a thousand."""
    story = place.story(kind, 0)
    assert story.verdict == "equal", (story.reason, story.kills)
    assert story.kills
