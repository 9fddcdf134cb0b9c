"""The promise of resuming, tortured: SIGKILL at random moments over every way to train, equal to the bit at the end."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from seqtrain import twins
from tests import examples
from tests.conftest import Seqtrain
from tests.tiny import OPTIONS, assert_twins, corpus

KINDS = {
    "stream": (*OPTIONS, "data.lanes=8", "model=gru", "model.dropout=0.2", "tbptt.k1=4"),
    "buckets": (*examples.options("sentiment"), "task.dropout=0.2", "data.batch_tokens=48"),
}
SHORT = (
    "trainer.accelerator=cpu",
    "trainer.max_steps=40",
    "trainer.checkpoint_every=3",
    "trainer.check_ranks_every=10",
)
MIDDLE = {"validated at the end": 1000, "validated in the middle": 7}
CELLS = list(itertools.product(KINDS, (1, 4), MIDDLE, (0, 2), (1, 2)))
KILLS = 100


def tortured(
    seqtrain: Seqtrain, folder: Path, cell: tuple[str, int, str, int, int], kills: int, seed: int
) -> list[int]:
    """Trains a cell beside its uninterrupted twin, with so many kills; the steps of those that hit."""
    kind, accumulate, validation, workers, devices = cell
    examples.files(corpus(folder))
    args = (
        *(*KINDS[kind], *SHORT, f"trainer.accumulate={accumulate}", f"trainer.validate_every={MIDDLE[validation]}"),
        *(f"data.workers={workers}", f"trainer.devices={devices}"),
    )
    twin = twins.trained(seqtrain.start, args, folder)
    hits = twins.killed_and_resumed(seqtrain.start, args, folder, kills=kills, seed=seed)
    assert_twins(twin, folder / "killed")
    return hits


@pytest.mark.parametrize(
    "cell",
    [
        ("stream", 4, "validated in the middle", 0, 2),
        pytest.param(("buckets", 1, "validated in the middle", 2, 1), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_run_killed_at_random_moments_ends_as_its_twin(
    cell: tuple[str, int, str, int, int], seqtrain: Seqtrain, tmp_path: Path
) -> None:
    assert tortured(seqtrain, tmp_path, cell, kills=2, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(CELLS)), ids=lambda number: "-".join(map(str, CELLS[number])))
def test_a_hundred_kills_over_every_way_to_train_change_no_bit(number: int, seqtrain: Seqtrain, tmp_path: Path) -> None:
    share = KILLS * (number + 1) // len(CELLS) - KILLS * number // len(CELLS)
    hits = tortured(seqtrain, tmp_path, CELLS[number], kills=share, seed=number)
    assert len(hits) == share, f"only {len(hits)} of {share} kills hit a run that was still going"
