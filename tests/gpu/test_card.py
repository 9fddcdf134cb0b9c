"""Laws of the two commands: without a card one line and exit code 2; what measures runs on the CPU, line by line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from benchmarks import bench_gpu
from seqtrain.config import check, preflight
from seqtrain.errors import UserError
from seqtrain.training.cost import count
from seqtrain.training.model_and_task import make_model, make_task, on_meta
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


@pytest.mark.long
def test_every_line_of_the_benchmark_that_needs_no_card_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    bench_gpu.main(["--device", "cpu", "--small"])
    out = capsys.readouterr().out
    left_out = [line for line in out.splitlines() if bench_gpu.LEFT_OUT in line]
    assert len(left_out) == 3, out  # window kernels, pinned memory, CUDA graphs
    assert "Error" not in out
    rows = [line for line in out.splitlines() if line.startswith("|") and line not in left_out]
    assert len(rows) == 4 * 2 + 3 + 5 + 2 + 3, out  # heads and rules, then what was measured


def test_gpt_2_is_the_one_of_124_million() -> None:
    sizes = bench_gpu.Sizes()
    config = check.compose([*bench_gpu.GPT_2, f"model.max_length={sizes.positions}", *sizes.gpt.split()]).config
    with on_meta():
        model = make_model(config, sizes.vocab_size)
        task = make_task(config, model, sizes.vocab_size)
    assert count(model) + count(task) == pytest.approx(124.4e6, rel=0.005)
