"""What every journey shares: commands that must succeed, a training that is killed, figures that must agree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seqtrain.runs import resume_check
from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support.tiny import newest_step, wait_until

STEPS = 9
KILLS = (2, 5)  # steps whose checkpoints the training lives to write
SMALL = (
    *(f"trainer.max_steps={STEPS}", "trainer.validate_every=3", "trainer.checkpoint_every=1", "trainer.log_every=1"),
    *("trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.check_ranks_every=1", "model.dim=16"),
    *("logger=none", "callbacks=none"),
)
TWO = ("trainer.devices=2", "trainer.strategy=ddp")
ROUNDING = 1e-6


@dataclass(frozen=True)
class Walk:
    """Types commands in one folder."""

    seqtrain: Seqtrain
    folder: Path

    def type(self, *words: str, **options: Any) -> str:
        """Run a command that must succeed; gives what it printed."""
        answer = self.seqtrain(*words, cwd=self.folder, **options)
        assert answer.rc == 0, f"seqtrain {' '.join(words)}: {answer.err[-1500:]}"
        return answer.out

    def json(self, *words: str) -> list[Any]:
        """Return the objects that a command prints with `--json`."""
        return [json.loads(line) for line in self.type(*words, "--json").splitlines()]

    def train(self, run: str, *words: str) -> Path:
        """Train to the end, undisturbed."""
        self.type("train", *words, f"run_dir={run}")
        return self.folder / run

    def train_killed(self, run: str, *words: str, kills: Sequence[int] = KILLS) -> Path:
        """Train to the end, killed by SIGKILL and resumed at each of these steps."""
        command = ["train", *words, f"run_dir={run}"]
        for step in kills:
            child = self.seqtrain.start(*command, cwd=self.folder)
            try:
                # Or a later one: on a busy machine an old checkpoint may be gone before anybody has looked.
                wait_until(lambda step=step: newest_step(self.folder / run) >= step, child, f"step {step}")
                child.kill_group()
                assert child.wait(60) == -9, f"was done before it was killed at step {step}"
            finally:
                child.kill_group()
                child.close()
            command = ["resume", run]
        self.type(*command)
        return self.folder / run

    def evaluate(self, run: str, split: str, *words: str) -> dict[str, float]:
        """Return the figures of the newest checkpoint on a split."""
        (found,) = self.json("evaluate", run, "--split", split, "--checkpoint", "last", *words)
        return found["metrics"]


def assert_near(found: Mapping[str, Any], expected: Mapping[str, Any], rounding: float = ROUNDING) -> None:
    """The same figures up to rounding."""
    assert found.keys() == expected.keys()
    assert found == pytest.approx(dict(expected), rel=rounding, abs=rounding, nan_ok=True)


def figures(run: Path) -> dict[str, float]:
    """Return the figures on validation that a training ended with."""
    return Run(run).summary.metrics["validation"]


def assert_twins(one: Path, other: Path) -> None:
    """Two runs end with the same bits."""
    difference = resume_check.difference(one, other)
    assert difference is None, difference
