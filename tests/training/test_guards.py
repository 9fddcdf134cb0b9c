"""Laws of the guards of a training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from seqtrain.training.callbacks import guards


@pytest.mark.parametrize(
    ("threads", "interruptions", "said"),
    [pytest.param(2, 1000, 1, id="shared"), pytest.param(2, 100, 0, id="alone"), pytest.param(1, 1000, 0, id="one")],
)
def test_a_training_of_several_threads_says_once_that_other_processes_use_its_cores(
    threads: int, interruptions: int, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(guards, "tell", lines.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    learner, trainer = (
        cast(Any, SimpleNamespace(device=torch.device("cpu"))),
        cast(Any, SimpleNamespace(is_global_zero=True)),
    )
    crowded = guards.Crowded()
    for step in range(3):
        # Each step takes 4 s of time and of one processor.
        usage = (4.0 * step, 4.0 * step, interruptions * step)
        monkeypatch.setattr(guards, "_usage", lambda usage=usage: usage)
        monkeypatch.setattr(guards.time, "monotonic", lambda usage=usage: usage[0])
        if step == 0:
            crowded.on_train_start(trainer, learner)
        else:
            crowded.on_train_batch_end(trainer, learner, None, None, step)
    crowded.on_train_batch_end(trainer, learner, None, None, 3)
    assert len(lines) == said
    assert all("trainer.threads=1" in line for line in lines)
