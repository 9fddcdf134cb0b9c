"""A rehearsal asks copies: what is trained afterwards is what would have been trained without it."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from seqtrain.config import check
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.training import rehearsal
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.data import make_data
from seqtrain.training.session import Session, make_session
from seqtrain.training.trainer import resolve_auto
from tests.support.examples import DATA, MODELS, SMALL, files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(files(tmp_path))
    return tmp_path


def session_of(task: str, folder: Path) -> Session:
    words = (f"task={task}", *DATA[task], *MODELS.get(task, ("model=gru",)), *SMALL)
    config = check.compose([*words, "trainer.accelerator=cpu", "callbacks=default"]).config
    resolve_auto(config, lambda line: None)
    data = make_data(config, ("train", "validation"), lambda line: None)
    run = Run.create(folder / f"run_{task}")
    run.close()
    return make_session(config, data, run, Signals(), Console(file=io.StringIO()), logged_config={})


@pytest.mark.parametrize("task", ["next_token", "masked_lm", "sentiment", "translation"])
def test_it_leaves_weights_modes_and_random_numbers_as_they_were(task: str, folder: Path) -> None:
    session = session_of(task, folder)
    learner = session.learner.train()
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    rehearsal.rehearse(session)
    for name, value in learner.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), str(np.random.get_state())) == states[1:]
    assert learner.model.training
    assert learner.task.training
    assert all(weight.grad is None for weight in learner.parameters())


def test_a_law_that_does_not_hold_names_the_task(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of("sentiment", folder)
    monkeypatch.setattr(type(session.learner.task), "monitor", "f1")
    with pytest.raises(UserError, match=r"^task=sentiment: `monitor` names f1, but `metrics` has loss, ") as told:
        rehearsal.rehearse(session)
    assert len(told.value.lines) == 1
