"""Laws of resuming: a run that was killed anywhere and resumed ends with the bits of its uninterrupted twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kills.__main__ import available, campaign
from benchmarks.kills.campaign import Campaign
from benchmarks.kills.kinds import Kind
from seqtrain.runs import resume_check
from tests.conftest import Seqtrain
from tests.support import examples
from tests.support.tiny import GPT, OPTIONS, corpus

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
    words = (*KINDS[name], "trainer.max_steps=60", "trainer.checkpoint_every=4")
    twin = resume_check.trained(seqtrain.start, words, tmp_path)
    hits = resume_check.killed_and_resumed(seqtrain.start, words, tmp_path, kills=3, seed=2)
    assert len(hits) == 3
    assert resume_check.difference(twin, tmp_path / "killed") is None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with campaign(tmp_path_factory.mktemp("kills"), seed=2) as place:
        yield place


HELD = (
    *("carried state", "windows", "sentiment, four micro-batches", "masked LM", "translation, two vocabularies"),
    *("Muon", "grid", "search by halving"),
)
"""Kinds whose options other kinds have together, or tests of this room: only `make kills` kills these."""


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in available("") if kind.name not in HELD], ids=lambda kind: kind.name)
def test_a_run_of_any_kind_killed_at_any_moment_ends_as_its_twin(kind: Kind, place: Campaign) -> None:
    """Kill a run of each kind between file events; `make kills` makes a thousand."""
    story = place.story(kind, 0)
    assert story.verdict == "equal", (story.reason, story.kills)
    assert story.kills
