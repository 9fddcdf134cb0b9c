"""Laws of what `seqtrain sync` sends and where to, whoever takes it: the destination is the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli import sync
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Asked, Sweep
from seqtrain.training.loggers.base import Record, RunLogger
from tests.support.pictures import PNG


class Taken(RunLogger):
    """Takes everything."""

    def __init__(self, directory: Path) -> None:
        super().__init__("the test", directory)
        self.records: list[Record] = []
        self.others: list[tuple[str, int]] = []
        self.figures: dict[str, Any] = {}

    def _metrics(self, metrics: Record, step: int) -> None:
        self.records.append(metrics)

    def _text(self, name: str, text: str, step: int) -> None:
        self.others.append((text, step))

    def _image(self, name: str, path: Path, step: int) -> None:
        self.others.append((name, step))

    def _end(self, figures: dict[str, Any]) -> None:
        self.figures = figures


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of two steps with a sample of the first, a plot, and a line in metrics.jsonl that has no step."""
    run = Run.create(tmp_path / "run")
    run.write_config({})
    for record in ({"step": 1, "train/loss": 3.0}, {"note": 1.0}, {"step": 2, "train/loss": 2.0}):
        run.append(record)
    (run.samples / "step-00000001.txt").write_text("once")
    (run.plots / "curve.png").write_bytes(PNG)
    run.update_summary(status="finished", steps=2)
    run.close()
    return run


def taken(run: Run, monkeypatch: pytest.MonkeyPatch, *words: str) -> Taken:
    """What arrives."""
    run_logger = Taken(run.path)
    monkeypatch.setattr("seqtrain.training.session.make_loggers", lambda *_: [run_logger])
    assert sync.main([str(run.path), *words]) == 0
    return run_logger


def test_what_has_no_step_is_no_point_and_the_others_keep_their_places(run: Run, monkeypatch) -> None:
    run_logger = taken(run, monkeypatch, "logger=tensorboard")
    assert [(record["record"], record["step"], record["train/loss"]) for record in run_logger.records] == [
        *((1, 1, 3.0), (3, 2, 2.0))
    ]
    assert run_logger.others == [("once", 1), ("curve", 2)]
    assert run_logger.figures == {"status": "finished", "steps": 2}


def test_a_sweep_of_which_nothing_has_begun_has_nothing_to_send(tmp_path: Path) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(()))
    sweep.plan(0, ["seed=1"], "seed=1")
    with pytest.raises(UserError, match=r"no trial of this sweep has begun; `seqtrain resume .*sweep` runs them"):
        sync.main([str(sweep.path)])
