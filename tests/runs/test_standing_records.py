"""Laws of the records that stand: what resumes overwrote is dropped, in time that grows with the file alone."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqtrain.runs.directory import Run
from seqtrain.runs.records import RESUMED
from seqtrain.training.callbacks.record import Recorder


def standing(records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, Any]]]:
    monkeypatch.setattr(Run, "records", lambda run: iter(records))
    return Run(Path("nowhere")).standing()


def test_each_resume_drops_what_lies_after_the_step_it_began_from(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    for _ in range(200):
        kinds = [draw.choice(["step", "step", RESUMED, "other"]) for _ in range(12)]
        records: list[dict[str, Any]] = [{kind: draw.randrange(-1, 6)} for kind in kinds]
        kept: list[tuple[int, dict[str, Any]]] = []
        for place, record in enumerate(records, 1):
            if RESUMED in record:
                kept = [(before, each) for before, each in kept if each.get("step", 0) <= record[RESUMED]]
            else:
                kept.append((place, record))
        assert standing(records, monkeypatch) == kept


def test_the_places_of_records_count_on_over_a_resume_and_what_it_overwrites(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    for step in (1, 2, 3):
        run.append({"step": step})
    run.resumed(1)
    sent: list[int] = []
    logger = SimpleNamespace(log_metrics=lambda record, step: sent.append(record["record"]))
    trainer: Any = SimpleNamespace(global_step=2, loggers=[logger])
    learner: Any = SimpleNamespace(progress=SimpleNamespace(tokens=0))
    recorder = Recorder(run=run, every=1, plan=cast(Any, SimpleNamespace(steps=1)))
    for _ in range(2):
        recorder._write(trainer, learner, {"train/loss": 1.0})
    assert sent == [place for place, record in run.standing() if "train/loss" in record] == [5, 6]
