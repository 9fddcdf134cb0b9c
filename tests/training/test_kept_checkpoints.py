"""Laws of the files in checkpoints/: as many as were asked for, also after a kill, and why one was passed over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seqtrain.runs.checkpoint import CUT, FOREIGN, newest_valid, save, step_name
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.checkpoints import Checkpoints
from seqtrain.training.callbacks.signals import Signals


def test_a_resumed_run_keeps_no_more_checkpoints_than_it_would_have(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    for step in (3, 5, 6, 9):
        (run.checkpoints / step_name(step)).touch()
    callback = Checkpoints(run=run, every=1, keep_last=2, keep_best=1, signals=Any)  # type: ignore[arg-type]
    saved = {"global_step": 6, "callbacks": {callback.state_key: callback.state_dict()}}
    trainer: Any = SimpleNamespace(should_stop=False, is_global_zero=True)
    callback.on_load_checkpoint(trainer, None, saved)  # type: ignore[arg-type]
    left = [path.name for path in sorted(run.checkpoints.iterdir())]
    assert left == [step_name(step) for step in (5, 6, 9)], "what is beyond the step is not judged before the next save"


def test_a_checkpoint_that_is_passed_over_is_told_with_its_own_reason(tmp_path: Path) -> None:
    sound, refused = tmp_path / step_name(1), tmp_path / step_name(2)
    save({"global_step": 1}, sound)
    writers: list[tuple[Callable[[Path], Any], str]] = [
        (lambda path: torch.save({"global_step": 2}, path), FOREIGN),
        (lambda path: save({"global_step": 3}, path), "its content is not a checkpoint of this step"),
        (lambda path: save_file({"x": torch.zeros(2)}, path), CUT),
        (lambda path: path.write_bytes(b""), CUT),
    ]
    for write, reason in writers:
        write(refused)
        said: list[str] = []
        assert newest_valid(tmp_path, said.append) == sound
        assert said == [f"skipped {refused}: {reason}"]


def test_by_default_saving_takes_at_most_a_fiftieth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(seconds=0.0, saving=0.0)
    monkeypatch.setattr("time.monotonic", lambda: clock.seconds)
    saved: list[int] = []

    def save_for_two_seconds(path: Path) -> None:
        saved.append(int(path.stem.removeprefix("step-")))
        clock.seconds += 2
        clock.saving += 2

    run = Run.create(tmp_path / "run")
    callback = Checkpoints(run=run, every="auto", keep_last=2, keep_best=1, signals=Signals())
    trainer: Any = SimpleNamespace(
        is_global_zero=True,
        lightning_module=torch.nn.Linear(1, 1),
        strategy=SimpleNamespace(reduce_boolean_decision=lambda decision: decision),
        save_checkpoint=save_for_two_seconds,
    )
    for step in range(1, 4001):
        trainer.global_step = step
        clock.seconds += 0.11
        if callback._due(trainer):
            callback._save(trainer)
    assert saved == [200, 1200, 2200, 3200], "every 200 steps of .11 s, if 100 s have passed since a save of 2 s"
    assert clock.saving / clock.seconds <= 1 / 50
