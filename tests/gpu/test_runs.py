"""Laws of whole runs on a card: resumed to the bit, in processes, without waiting, out of memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch

import seqtrain
from seqtrain.api import alone
from seqtrain.config import check
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.experiment.resume import resume
from seqtrain.runs.checkpoint import load
from seqtrain.runs.directory import Run
from seqtrain.runs.resume_check import difference
from seqtrain.training.carried_state import CarriedState, read_batch
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_pair
from tests.conftest import REPOSITORY, Seqtrain
from tests.gpu.conftest import accelerator, asked
from tests.support import examples
from tests.support.tiny import GPT, OPTIONS, corpus

STEPS = 12
STREAM = tuple(option for option in OPTIONS if option != "callbacks=none")
SERIES = ("task=forecast", "data.size=4", "data.length=150", "data.max_length=16", "task.horizon=4", "model.dim=8")
RUNS = {
    "lstm": (*STREAM, "model.num_layers=2", "model.dropout=0.1"),
    "gru with k1 below k2": (*STREAM, "model=gru", "tbptt.k1=2"),
    "min_gru on jittered chunks": (*STREAM, "model=min_gru", "tbptt.jitter=awd"),
    "gpt": (*STREAM, *GPT, "model.dropout=0.1", "optimizer=muon"),
    "cnn, with workers": (*STREAM, "model=cnn", "data.workers=1"),
    "forecast": (*SERIES, "logger=none"),
}


def of_task(task: str) -> tuple[str, ...]:
    """The options of a tiny run of a task, with what it shows at a validation."""
    return tuple(option for option in examples.options(task) if option not in ("callbacks=none", "trainer.threads=1"))


for each in examples.MODELS:
    RUNS[each] = of_task(each)


def on(device: torch.device) -> tuple[str, ...]:
    """Options of a run on this device, behind all others."""
    return (
        *(f"trainer.accelerator={accelerator(device)}", "trainer.deterministic=true", "trainer.precision=32-true"),
        *("trainer.validate_every=6", "trainer.checkpoint_every=6", "trainer.log_every=4", "schedule=constant"),
    )


@pytest.fixture
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with data of all tasks to stand in."""
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(examples.files(corpus(tmp_path)))


@pytest.mark.usefixtures("_at_home")
@asked("name", RUNS, cpu=("lstm", "cnn, with workers"))
def test_a_resumed_run_ends_with_the_same_bits(device: torch.device, name: str) -> None:
    options = (*RUNS[name], *on(device))
    whole = seqtrain.train(*options, f"trainer.max_steps={STEPS}", "run_dir=whole")
    seqtrain.train(*options, f"trainer.max_steps={STEPS // 2}", "run_dir=parted")
    with alone():
        resume("parted", [f"trainer.max_steps={STEPS}"], ())
    assert difference(Path("whole"), Path("parted")) is None
    assert torch.are_deterministic_algorithms_enabled()
    summary = Run(Path("whole")).summary
    assert summary.status == "finished"
    if device.type == "cuda":
        assert any("system/gpu_memory_mb" in record for record in Run(Path("whole")).metrics())
    assert whole.metrics["validation"]["loss"] > 0


# -- several processes -----------------------------------------------------------------------------------------------


def layout(device: torch.device) -> tuple[str, ...]:
    """As many processes as there are cards, on NCCL; where there is one card or none, two on the CPU, on gloo."""
    cards = torch.cuda.device_count() if device.type == "cuda" else 0
    if cards < 2:
        return ("trainer.accelerator=cpu", "trainer.devices=2")
    return ("trainer.accelerator=gpu", f"trainer.devices={cards}")


def command(device: torch.device, seqtrain: Seqtrain, *words: str, folder: Path) -> None:
    """Runs `seqtrain WORDS`; for a card in a new process, for CUDA cannot be used again in one that was forked."""
    if device.type == "cpu":
        answer = seqtrain(*words, cwd=folder)
        assert answer.rc == 0, answer.err
    else:
        line = (sys.executable, "-m", "seqtrain", *words)
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("_at_home")
@asked(
    "name,strategy",
    itertools.product(("lstm", "gpt", "translation"), ("ddp", "fsdp")),
    cpu=[("lstm", "ddp"), ("translation", "fsdp")],
)
def test_processes_change_no_number(
    device: torch.device,
    name: str,
    strategy: str,
    seqtrain: Seqtrain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    lanes = max(8, 2 * torch.cuda.device_count())
    exact = (
        *("trainer.precision=64-true", "model.dropout=0", "callbacks=none", "optimizer=adamw"),
        *(f"trainer.max_steps={STEPS}", "trainer.check_ranks_every=1"),
        *((f"data.batch_size={lanes}",) if name != "translation" else ()),
    )
    options = (*RUNS[name], *on(device), *exact)
    command(device, seqtrain, "train", *options, "run_dir=one", folder=tmp_path)
    shared = (*layout(device), f"trainer.strategy={strategy}", "run_dir=many")
    command(device, seqtrain, "train", *options, *shared, folder=tmp_path)
    one, many = (load(tmp_path / run / "checkpoints" / f"step-{STEPS:08d}.ckpt") for run in ("one", "many"))
    for key, value in one["state_dict"].items():
        assert float((value - many["state_dict"][key]).abs().max()) < 1e-9, key
    assert Run(tmp_path / "many").summary.world_size >= 2  # type: ignore[operator]


# -- a step that nobody waits for ------------------------------------------------------------------------------------

STEPPED = {
    **{name: (f"model={name}",) for name in ("rnn", "gru", "lstm", "min_gru", "cnn", "gpt")},
    "on documents": ("tbptt.reset=document",),
    "k1 below k2": ("tbptt.k1=2",),
    "whole windows": ("model=gpt", "tbptt=windows", "tbptt.k2=8"),
}


@pytest.mark.usefixtures("_at_home")
@pytest.mark.parametrize("name", [*STEPPED, *examples.MODELS, "forecast"])
def test_the_steps_of_a_training_make_nobody_wait_for_the_card(device: torch.device, name: str) -> None:
    """On a card torch tells of each wait. Without one the meta device stands in: nothing can be read off it, and it
    takes no tensor that was made on the CPU."""
    if name in STEPPED:
        options = (*OPTIONS, *STEPPED[name])
    else:
        options = (*SERIES, "logger=none") if name == "forecast" else examples.options(name)
    config = check.compose(list(options)).config
    data = make_data(config, ("train",), lambda line: None)
    model, task = make_pair(config, data.preprocessor, data.label_counts)
    place = device if device.type == "cuda" else torch.device("meta")
    pair = torch.nn.ModuleList([model, task]).to(place).train()
    optimizer = torch.optim.AdamW(pair.parameters(), fused=place.type == "cuda", foreach=place.type != "cuda")
    carried = CarriedState() if data.tbptt.carry else None

    def step(batch: Any) -> None:
        terms, _ = read_batch(model, task, batch.to(place, non_blocking=True), carried)
        means = [terms[part][0] / batch.totals[part] for part in task.differentiated]
        reduce(torch.add, means).backward()
        torch.nn.utils.clip_grad_norm_(pair.parameters(), 1.0)
        if place.type == "cuda":
            optimizer.step()
        optimizer.zero_grad()

    batches = list(itertools.islice(TrainLoader(data.batcher("train"), data.plan("train"), accumulate=1), 6))
    step(batches[0])  # the first one of all loads kernels
    if place.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches[1:]:
            step(batch)
    finally:
        if place.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_at_home")
def test_where_memory_ends_one_line_says_what_to_lower(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqtrain.cli import main
    from seqtrain.models.recurrent import LSTM

    read = LSTM.forward

    def too_much(self: Any, tokens: torch.Tensor, *args: Any, **more: Any) -> Any:
        if tokens.device.type == "cuda":
            torch.empty(1 << 50, dtype=torch.uint8, device=tokens.device)  # more than any card has
        elif tokens.device.type == "cpu" and self.training:
            raise torch.OutOfMemoryError("out of memory")  # as a card says it
        return read(self, tokens, *args, **more)

    monkeypatch.setattr(LSTM, "forward", too_much)
    code = main.main(["train", *RUNS["lstm"], *on(device), f"trainer.max_steps={STEPS}", "run_dir=run"])
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert (code, len(errors)) == (1, 1)
    assert "out of memory at step 1" in errors[0]
    assert "trainer.accumulate=2" in errors[0]
