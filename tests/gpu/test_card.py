"""Laws of the two commands: without a card they are one line and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from seqtrain.config import check, preflight
from seqtrain.errors import UserError
from tests.conftest import REPOSITORY


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a card")
@pytest.mark.parametrize("module", ["tests.gpu.card", "benchmarks.bench_gpu"])
def test_without_a_card_it_is_one_line_and_exit_code_2(module: str) -> None:
    place = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run((sys.executable, "-m", module), env=place, capture_output=True, text=True, timeout=120)
    lines = (done.stdout + done.stderr).splitlines()
    assert (done.returncode, len(lines)) == (2, 1), lines
    assert lines[0].startswith("error: ")
    assert "docs/gpu.md" in lines[0]


def test_fp16_and_shards_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "has_gpu", lambda: True)
    shards = ["trainer.strategy=fsdp", "trainer.devices=2", "optimizer=adamw"]
    preflight.check_machine_and_data(check.compose([*shards, "trainer.precision=bf16-mixed"]).config)
    with pytest.raises(UserError, match=r"^trainer\.strategy=fsdp: precision 16-mixed .* or trainer=ddp$"):
        preflight.check_machine_and_data(check.compose([*shards, "trainer.precision=16-mixed"]).config)
