"""Laws of what sinks make of a run's figures, its status and its earlier sittings; nothing is sent."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.training.loggers import base
from seqtrain.training.loggers.base import guarded
from seqtrain.training.loggers.wandb_logger import WandbLogger
from tests.support import fake_runs, wandb_tools
from tests.training.test_loggers import OPTIONS


@pytest.fixture
def run_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WandbLogger:
    """W&B, offline, for a run that has recorded something."""
    wandb_tools.alone(monkeypatch, tmp_path)
    run = Run.create(tmp_path / "run")
    run.append({"step": 1, "validation/loss": 2.0})
    run.close()
    options: Any = {**OPTIONS, "project": "ours", "entity": "us"}
    return WandbLogger(**options, x="tokens", mode="offline", directory=run.path, config={"a": {"b": 1}})


def test_the_identity_is_that_of_the_sweep_agent_alone_and_the_project_with_it(
    run_logger: WandbLogger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "somebody's")
    own = run_logger.identified()
    assert (own["project"], own["entity"], own["config"]) == ("ours", "us", {"options": {"a": {"b": 1}}})
    assert own["id"] == (Path(run_logger.save_dir) / "wandb_id").read_text() != "somebody's"
    for name, value in wandb_tools.agent("theirs", tmp_path / "given.yaml").items():
        monkeypatch.setenv(name, value)
    agents = run_logger.identified()
    assert (agents["project"], agents["entity"], agents["config"]) == (None, None, own["config"])


class Plain:
    """A logger of the user's own."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.told.append((metrics, step))

    def finalize(self, status: str) -> None:
        self.told.append(status)


def test_a_logger_of_the_users_own_gets_the_numbers_and_hears_how_the_run_ended(tmp_path: Path) -> None:
    answers = {"finished": "success", "pruned": "success", "failed": "failed", "interrupted": "failed"}
    for status, told in answers.items():
        logger: Any = Plain()
        run_logger = guarded(logger, tmp_path)
        run_logger.log_metrics({"loss": 1.0}, 5)
        run_logger.log_text("samples", "text", 5)
        run_logger.end(Summary.from_plain({"status": status}))
        assert logger.told == [({"loss": 1.0}, 5), told]
        assert guarded(run_logger, tmp_path) is run_logger


def test_wandb_shows_a_pruned_trial_as_one_that_went_well(run_logger: WandbLogger) -> None:
    codes: list[int] = []
    for status in ("pruned", "finished", "failed"):
        run_logger._run = SimpleNamespace(summary={}, step=3, finish=lambda exit_code: codes.append(exit_code))
        run_logger.end(Summary.from_plain({"status": status}))
    assert codes == [0, 0, 1]


CONF = Path(str(files("seqtrain.conf")))


def test_every_model_goes_by_the_name_that_was_typed() -> None:
    for path in (CONF / "model").glob("*.yaml"):
        config = {"model": yaml.safe_load(path.read_text())}
        # Of two files with one class, which differ in its options, that of the class.
        name = "encoder_decoder" if path.stem == "rnn_encoder_decoder" else path.stem
        assert base.chosen(config) == {"model": name}


def test_hyperparameters_are_plain_values_without_what_only_says_how_a_run_is_watched() -> None:
    config: dict[str, Any] = {**fake_runs.CONFIG, "logger": {"wandb": {"project": "p"}}}
    found = base.hyperparameters(config)
    assert (found["model"], found["model.dim"], found["optimizer.betas"]) == ("lstm", 16, "[0.9, 0.95]")
    assert not [name for name in found if name.startswith(("logger", "callbacks", "run_dir")) or "._" in name]
    assert all(isinstance(value, str | bool | int | float) for value in found.values())


def test_a_figure_never_has_the_name_of_what_was_measured_on_the_way() -> None:
    figures: dict[str, Any] = {
        "status": "finished",
        "metrics": {"validation": {"loss": 1.5, "bleu": math.nan}},
        "best": {"step": 20, "validation": {"loss": 1.25}},
        "tokens": 640,
        "parameters": {"total": 10},
        "padding": None,
    }
    assert base.figures_as_metrics(figures) == {
        "final/validation/loss": 1.5,
        "best/step": 20.0,
        "best/validation/loss": 1.25,
        "run/tokens": 640.0,
        "run/parameters/total": 10.0,
    }
