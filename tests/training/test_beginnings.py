"""Laws of beginning from another run: a head is of its task, and what is frozen or slowed is what was named."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from seqtrain.models.base import SequenceModel
from seqtrain.runs.checkpoint import load, step_name
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Task
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.training.session import load_initial_weights
from seqtrain.training.transfer import copy_matching, freeze
from tests.conftest import Seqtrain
from tests.support import untrained_runs
from tests.support.model_cases import Case


def sentiment(model: SequenceModel, labels: int) -> Sentiment:
    given: dict[str, Any] = {
        "pool": "last",
        "dropout": 0.0,
        "class_weights": "none",
        "bptt_length": 100,
        "label_counts": (),
    }
    return Sentiment(**given, dim=model.dim, labels=tuple(map(str, range(labels))))


def test_a_head_of_another_task_is_never_copied_though_its_shape_fits() -> None:
    model = Case("gru", ()).make()
    origin, task = NextToken(tied=False, dim=8, vocab_size=5), sentiment(model, 5)
    assert origin.head is not None
    assert origin.head.weight.shape == task.head.weight.shape
    given = {f"model.{name}": value for name, value in model.state_dict().items()}
    given |= {f"task.{name}": value for name, value in origin.state_dict().items()}
    before = task.head.weight.clone()
    said: list[str] = []
    with torch.no_grad():
        copy_matching(model, task, given, same_task=False, say=said.append)
    assert torch.equal(task.head.weight, before)
    assert "new: 2 (task.head); left behind: 2 (task.head)" in said[0]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of next_token with a head of its own."""
    return untrained_runs.make_run(
        tmp_path_factory.mktemp("beginnings") / "run", *untrained_runs.NEXT_TOKEN, "task.tied=false"
    )


@pytest.mark.parametrize("same", [True, False])
def test_a_run_hands_its_head_on_to_its_own_task_alone(same: bool, origin: Path) -> None:
    saved = load(origin / "checkpoints" / step_name(untrained_runs.STEP))["state_dict"]
    begun = untrained_runs.double(origin)
    model: SequenceModel = begun.model.float()
    for weight in model.parameters():
        nn.init.zeros_(weight)
    vocab_size = len(saved["task.head.weight"])
    task: Task = NextToken(tied=False, dim=16, vocab_size=vocab_size) if same else sentiment(model, vocab_size)
    before: Tensor = task.head.weight.clone()  # type: ignore[union-attr,operator]
    session: Any = SimpleNamespace(learner=SimpleNamespace(model=model, task=task, run=Run(origin)))
    config = OmegaConf.create({"init_from": str(origin)})
    load_initial_weights(config, session, lambda line: None, parent_hash=None)
    assert all(torch.equal(value, saved[f"model.{name}"]) for name, value in model.state_dict().items())
    assert torch.equal(task.head.weight, saved["task.head.weight"] if same else before)  # type: ignore[union-attr,arg-type]


def test_a_layer_is_frozen_by_its_whole_number() -> None:
    model = Case("gpt", (("num_layers", 12),)).make()
    freeze(model, ["blocks.1"])
    frozen = {name.split(".")[1] for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {"1"}


@pytest.mark.parametrize("adapter", [(), ("adapter=lora",)], ids=["weights", "adapters"])
def test_a_run_with_a_checkpoint_resumes_without_the_run_that_it_began_with(
    adapter: tuple[str, ...], seqtrain: Seqtrain, tmp_path: Path
) -> None:
    data = ("task=tag", "data=parity", "data.size=40", "data.validation_size=8", "data.test_size=0", "data.longest=9")
    words = (*data, "trainer.validate_every=1", "trainer.checkpoint_every=1", "logger=none", "callbacks=none")
    first = seqtrain("train", *words, "model=gru", "model.dim=8", "trainer.max_steps=1", "run_dir=first", cwd=tmp_path)
    assert first.rc == 0, first.err
    begun = seqtrain(
        "train", *words, *adapter, "init_from=first", "trainer.max_steps=1", "run_dir=second", cwd=tmp_path
    )
    assert begun.rc == 0, begun.err
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    resumed = seqtrain("resume", "second", "trainer.max_steps=2", cwd=tmp_path)
    assert resumed.rc == 0, resumed.err
    (tmp_path / "second" / "checkpoints").rename(tmp_path / "lost")  # without one it has to begin again
    (tmp_path / "second" / "checkpoints").mkdir()
    refused = seqtrain("resume", "second", "trainer.max_steps=3", cwd=tmp_path)
    assert refused.rc == 2
    assert "init_from=first: no run directory" in refused.err
