"""Laws of several machines that torchrun starts: here two agents of one machine, which meet over loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seqtrain.runs.directory import Run
from tests.conftest import REPOSITORY, Seqtrain
from tests.distributed.test_layouts import STEPS, assert_same_numbers
from tests.support.tiny import GPT, OPTIONS, corpus

TRAIN = (
    *("train", *OPTIONS, "data.batch_size=8", f"trainer.max_steps={STEPS}", "trainer.precision=64-true"),
    *("trainer.accelerator=cpu", "trainer.validate_every=10", "trainer.checkpoint_every=10", "trainer.threads=1"),
)
MEETINGS = {
    "static": lambda node, port: (
        *("--rdzv-backend", "static", "--node-rank", str(node)),
        *("--rdzv-endpoint", f"127.0.0.1:{port}"),
    ),
    "c10d": lambda node, port: (
        *("--rdzv-backend", "c10d", "--rdzv-id", "one-job"),
        *("--rdzv-endpoint", f"127.0.0.1:{port}"),
    ),
}
"""How agents meet: told their number by whoever starts them, as a cluster does, or agreeing on it by themselves."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def agent(node: int, port: int, meeting: str, words: tuple[str, ...], folder: Path, env: dict[str, str]):
    """One machine's torchrun, with a process of ours below it."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1")
    command = (*torchrun, *MEETINGS[meeting](node, port), "-m", "seqtrain", *words)
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def on_two_nodes(
    words: tuple[str, ...], folder: Path, env: dict[str, str], meeting: str, timeout: float = 300
) -> tuple[list[int], str]:
    """The exit codes of both agents, and what they said on standard error."""
    port = free_port()
    agents = [agent(node, port, meeting, words, folder, env) for node in range(2)]
    try:
        said = [each.communicate(timeout=timeout)[1] for each in agents]
    finally:
        for each in agents:
            each.kill()
            each.wait()
    return [each.returncode for each in agents], "\n".join(said)


@pytest.fixture
def env(seqtrain_environment: dict[str, str]) -> dict[str, str]:
    return {**seqtrain_environment, "PYTHONPATH": str(REPOSITORY)}


@pytest.mark.long
@pytest.mark.parametrize(("name", "meeting", "strategy"), [("gpt", "c10d", "ddp"), ("lstm", "static", "fsdp")])
def test_two_agents_train_the_weights_of_one_process(
    name: str, meeting: str, strategy: str, seqtrain: Seqtrain, env: dict[str, str], tmp_path: Path
) -> None:
    folder = corpus(tmp_path)
    model = GPT if name == "gpt" else ()
    answer = seqtrain(*TRAIN, *model, "run_dir=one", cwd=folder)
    assert answer.rc == 0, answer.err
    nodes = ("trainer.devices=1", "trainer.num_nodes=2", f"trainer.strategy={strategy}", "run_dir=two")
    codes, said = on_two_nodes((*TRAIN, *model, *nodes), folder, env, meeting)
    assert codes == [0, 0], said
    assert_same_numbers(folder / "one", folder / "two")
    assert Run(folder / "two").summary.world_size == 2


@pytest.mark.long
def test_a_run_that_one_process_began_goes_on_under_two_agents(
    seqtrain: Seqtrain, env: dict[str, str], tmp_path: Path
) -> None:
    folder, constant = corpus(tmp_path), ("schedule=constant",)
    assert seqtrain(*TRAIN, *constant, "run_dir=one", cwd=folder).rc == 0
    assert seqtrain(*TRAIN, *constant, f"trainer.max_steps={STEPS // 2}", "run_dir=parted", cwd=folder).rc == 0
    words = ("resume", "parted", f"trainer.max_steps={STEPS}", "trainer.devices=1", "trainer.num_nodes=2")
    codes, said = on_two_nodes(words, folder, env, "static")
    assert codes == [0, 0], said
    assert_same_numbers(folder / "one", folder / "parted")
