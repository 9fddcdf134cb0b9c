"""Laws of a resume that is refused for what its checkpoint holds: one line, and the run stands as it stood."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from seqtrain.errors import UserError
from seqtrain.experiment.resume import resume
from seqtrain.runs.checkpoint import load, save, step_name
from tests.support import tiny
from tests.training.test_checkpoint_check import STEP, moments, trained


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps."""
    return trained(tiny.corpus(tmp_path_factory.mktemp("probed"), lines=60))


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.glob("*.*") if path.is_file()}


def test_a_refused_checkpoint_leaves_config_summary_and_records_as_they_were(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    saved = load(run / "checkpoints" / step_name(STEP))
    moments(saved).update(exp_avg=torch.zeros(1))
    save(saved, run / "checkpoints" / step_name(STEP))
    before = contents(run)
    with pytest.raises(UserError, match="exp_avg is float32 of 1") as fault:
        resume(str(run), ["trainer.max_steps=6"], ("seqtrain", "resume"))
    assert len(fault.value.lines) == 1
    assert contents(run) == before
