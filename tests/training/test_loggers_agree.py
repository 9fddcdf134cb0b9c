"""Laws of the loggers: each gets the numbers of metrics.jsonl at their own step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.training.callbacks.record import Recorder
from seqtrain.training.clipping import Clipping
from seqtrain.training.loggers.base import RunLogger
from seqtrain.training.loggers.mlflow_logger import MLflowLogger
from seqtrain.training.loggers.tensorboard_logger import TensorBoardLogger
from seqtrain.training.loggers.wandb_logger import WandbLogger
from tests.support import wandb_tools
from tests.training.test_loggers import OPTIONS, events
from tests.training.test_mlflow import client as client

FLOPS = 7.0  # a token
VALIDATED = {4: {"loss": 3.5, "accuracy": 0.25}, 8: {"loss": 2.5, "accuracy": 0.75}, 12: {"loss": 3.0, "accuracy": 0.5}}


class WandbRun:
    """What is asked of W&B's run."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.ways: dict[str, dict[str, Any]] = {}
        self.summary: dict[str, Any] = {}

    def log(self, values: dict[str, Any], *, step: int) -> None:
        assert step == len(self.rows) + 1
        self.rows.append(values)

    def define_metric(self, name: str, **options: Any) -> None:
        self.ways[name] = options

    def finish(self, *, exit_code: int) -> None:
        assert exit_code == 0


@pytest.fixture
def wandb_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WandbRun:
    """A stand-in for W&B's run, with the same signatures."""
    wandb_tools.alone(monkeypatch, tmp_path)
    found = WandbRun()
    monkeypatch.setattr(WandbLogger, "_begin", lambda run_logger: found)
    return found


def trained(run: Run, loggers: list[RunLogger]) -> None:
    """A training of 12 steps as the recorder sees it: its own points after each second step, three validations."""
    recorder = Recorder(run=run, every=2, plan=SimpleNamespace(steps=8))  # type: ignore[arg-type]
    progress = SimpleNamespace(tokens=0, fingerprint=0, gradient_norm=None, skipped=0)
    learner: Any = SimpleNamespace(
        progress=progress,
        task=SimpleNamespace(measure=lambda totals, facts: {"loss": totals / facts}),
        facts={"train": 2.0, "validation": 1e9},
        sums=SimpleNamespace(),
        sums_of_clipping=Clipping(),
        on_nonfinite="stop",
        device=torch.device("cpu"),
        metrics={},
    )
    groups = [{"lr": 0.0}, {"lr": 99.0}]
    trainer: Any = SimpleNamespace(
        accumulate_grad_batches=2,
        global_step=0,
        loggers=loggers,
        optimizers=[SimpleNamespace(param_groups=groups)],
        state=SimpleNamespace(fn="fit"),
    )
    for micro in range(24):
        learner.reduce_sums = lambda micro=micro: float(micro + 1)
        trainer.global_step = (micro + 1) // 2
        progress.tokens += 5
        progress.gradient_norm = 100.0 + micro
        groups[0]["lr"] = 1 / (micro + 1)
        recorder.on_train_batch_start(trainer, learner, None, micro)
        recorder.on_train_batch_end(trainer, learner, None, None, micro)
        if micro % 2 and trainer.global_step in VALIDATED:
            learner.metrics = VALIDATED[trainer.global_step]
            recorder.on_validation_start(trainer, learner)
            recorder.on_validation_end(trainer, learner)
    for logger in loggers:
        logger.end(Summary.from_plain({"status": "finished"}))


def test_every_logger_gets_the_numbers_of_the_record_at_their_step(
    tmp_path: Path, wandb_run: WandbRun, client: Any
) -> None:
    run = Run.create(tmp_path / "run")
    run.update_summary(flops_per_token=FLOPS)
    wandb: Any = WandbLogger(**OPTIONS, x="tokens", mode="offline", directory=run.path, config={})  # type: ignore[arg-type]
    tensorboard = TensorBoardLogger(directory=run.path, config={})
    mlflow = MLflowLogger(log_model=False, experiment="e", tracking_uri=None, directory=run.path, config={})
    trained(run, [wandb, tensorboard, mlflow])

    written = run.metrics()
    assert [(point["step"], "train/loss" in point) for point in written] == [
        *((2, True), (4, True), (4, False), (6, True), (8, True), (8, False), (10, True), (12, True), (12, False))
    ]
    for point in written:
        assert point["tokens"] == 10 * point["step"]
        assert point["epoch"] == pytest.approx(point["step"] / 8, abs=1e-4)
        if "train/loss" in point:
            assert point["train/loss"] == point["step"]
            assert point["lr"] == pytest.approx(1 / (2 * point["step"]))
            assert point["gradient_norm"] == 99.0 + 2 * point["step"]
        else:
            assert point.items() >= {f"validation/{k}": v for k, v in VALIDATED[point["step"]].items()}.items()

    plain = [{name: value for name, value in point.items() if name not in ("read", "time")} for point in written]
    assert wandb_run.rows == [
        {**point, "flops": FLOPS * point["tokens"], "_timestamp": written[place - 1]["time"]}
        for place, point in enumerate(plain, 1)
    ]
    assert wandb_run.ways["*"] == {"step_metric": "tokens"}
    points = [(name, value, point["step"]) for point in plain for name, value in point.items() if name != "step"]
    assert [point for call in client.calls if call[0] == "log_batch" for point in call[2]] == points
    found = {name: shown for name, shown in events(run.path).items() if shown}
    assert found == {
        name: [(step, pytest.approx(value)) for other, value, step in points if other == name] for name, _, _ in points
    }
