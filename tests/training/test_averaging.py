"""Laws of averaged weights: they are what is measured and kept, and training goes on as without them, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrain.runs.checkpoint import load
from tests.conftest import Seqtrain
from tests.journeys.walk import SMALL, STEPS, Walk, assert_near, assert_twins, figures

WORDS = (
    *(word for word in SMALL if word != "callbacks=none"),
    *("callbacks=ema", "callbacks.ema.decay=0.9", "callbacks.samples=null", "callbacks.curves=null"),
    *("task=tag", "model=gru", "data=person_or_place", "data.size=200", "data.batch_tokens=96"),
)


@pytest.fixture(scope="module")
def walk(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return Walk(seqtrain, tmp_path_factory.mktemp("averaged"))


@pytest.fixture(scope="module")
def trained(walk: Walk) -> Path:
    return walk.train("ema", *WORDS)


def saved(run: Path, step: int = STEPS) -> dict[str, Any]:
    return load(run / "checkpoints" / f"step-{step:08d}.ckpt")


def test_training_goes_on_as_without_an_average(walk: Walk, trained: Path) -> None:
    plain = saved(walk.train("plain", *WORDS, "callbacks.ema=null"))
    averaged = saved(trained)
    for name, weight in plain["state_dict"].items():
        assert torch.equal(averaged["current_model_state"][name], weight)
    assert averaged["averaging_state"]["n_averaged"] == STEPS


def test_the_average_is_that_of_all_steps(walk: Walk) -> None:
    run = walk.train("kept", *WORDS, "trainer.keep_last=9")
    expected: dict[str, torch.Tensor] = {}
    for step in range(1, STEPS + 1):
        contents, n = saved(run, step), step - 1
        weights = contents["current_model_state"]
        share = min(0.9, (1 + n) / (10 + n))
        expected = {name: share * expected.get(name, each) + (1 - share) * each for name, each in weights.items()}
        for name, average in contents["state_dict"].items():
            torch.testing.assert_close(average, expected[name])
    assert not torch.equal(average, weights[name])


def test_a_killed_run_ends_as_an_undisturbed_one_and_its_average_is_evaluated(walk: Walk, trained: Path) -> None:
    assert_twins(trained, walk.train_killed("ema-killed", *WORDS))
    assert_near(walk.evaluate("ema-killed", "validation"), figures(trained))
    walk.type("export", "ema", "--output", "exported")
    assert walk.json("predict", "exported", "boston smiled") == walk.json("predict", "ema", "boston smiled")
    walk.evaluate("ema", "test")
    walk.type("compare", "ema", "ema-killed")
