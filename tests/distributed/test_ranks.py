"""Laws of several processes: they meet, leave together when asked to, and none outlives another's death."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seqtrain.cli import arguments, main
from seqtrain.distributed import launch, ranks
from seqtrain.distributed.fork_server import Child
from seqtrain.distributed.ranks import RankInfo, check_world, first_host, rank_info
from seqtrain.errors import UserError
from seqtrain.experiment import report
from seqtrain.runs.checkpoint import newest_valid
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.guards import checksum
from tests.conftest import Seqtrain
from tests.support import fake_runs
from tests.support.tiny import OPTIONS, PATIENCE, assert_twins, corpus, newest_step, wait_until

STEPS = 200
TRAIN = (
    *("train", *OPTIONS, "data.batch_size=8", "model=gru", "trainer.accelerator=cpu", "trainer.devices=2"),
    *(f"trainer.max_steps={STEPS}", "trainer.validate_every=1000", "trainer.checkpoint_every=50"),
)
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
SRUN = {
    **{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2"},
    **{"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"},
}
BATCH_SCRIPT = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


def test_a_process_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    there = RankInfo(3, 4, 1, 2, 1)
    for env, expected in (({}, RankInfo()), (TORCHRUN, there), (SRUN, there), (BATCH_SCRIPT, RankInfo())):
        monkeypatch.setattr(os, "environ", env)
        assert rank_info() == expected, env


NOWHERE = {
    "a word": {**TORCHRUN, "RANK": "x"},
    "none of none": {"RANK": "0", "WORLD_SIZE": "0"},
    "beyond the last": {**TORCHRUN, "RANK": "4"},
    "before the first": {**TORCHRUN, "RANK": "-1"},
    "no place of its own": {**TORCHRUN, "LOCAL_RANK": ""},
    "half of what srun says": {name: value for name, value in SRUN.items() if name != "SLURM_LOCALID"},
    "no node": {**SRUN, "SLURM_STEP_NUM_TASKS": "x"},
}


def test_a_place_that_there_is_not_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for name, env in NOWHERE.items():
        for key in (*TORCHRUN, *SRUN):
            monkeypatch.delenv(key, raising=False)
        for key, value in env.items():
            monkeypatch.setenv(key, value)
        assert main.main(["compare", "nowhere"]) == 2, name
        (line,) = capsys.readouterr().err.splitlines()
        assert "not a valid rank; start the processes with torchrun or srun, or unset the variables" in line, name


def test_a_place_to_meet_that_there_is_not_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (*SRUN, "MASTER_PORT", "SEQTRAIN_MEET"):
        monkeypatch.delenv(key, raising=False)
    for key, value in TORCHRUN.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UserError, match=r"RANK=3, WORLD_SIZE=4: .*not MASTER_ADDR.*torchrun"), ranks.process_group():
        pass
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for port in (None, "abc", "0", "-1", "65536"):
        if port is not None:
            monkeypatch.setenv("MASTER_PORT", port)
        with pytest.raises(UserError, match="MASTER_PORT"), ranks.process_group():
            pass
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("MASTER_ADDR", "nowhere.invalid")
    with pytest.raises(UserError, match=r"MASTER_ADDR=nowhere\.invalid: no such host"), ranks.process_group():
        pass


def test_how_a_run_ended_is_told_by_the_first_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(fake_runs.run(tmp_path / "run"))
    monkeypatch.setattr(report, "lines", lambda run: ["the end"])
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    for as_json in (True, False):
        told = []
        for rank in range(4):
            monkeypatch.setenv("RANK", str(rank))
            assert arguments.finish(run, as_json) == 0
            told.append(bool(capsys.readouterr().out))
        assert told == [True, False, False, False], as_json


def test_processes_meet_at_the_first_host() -> None:
    hosts = {"one": "one", "one,two": "one", "a[3-5,7],b": "a3", "node-[01-04]": "node-01", "x1,y[2-3]": "x1"}
    for nodes, host in hosts.items():
        assert first_host(nodes) == host


def test_a_world_that_is_not_what_was_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    check_world(2, 2)
    check_world("all", 2)
    with pytest.raises(
        UserError, match=r"trainer.devices=4.*4 processes were started; use trainer.devices=2 and .*nodes=2"
    ):
        check_world(4, 2)


def test_a_checksum_sees_every_bit_and_the_order() -> None:
    one, two = torch.randn(5, 3), torch.randn(4)
    other = one.clone()
    other[2, 1] = torch.nextafter(other[2, 1], torch.tensor(9.0))
    found = {checksum([one, two]), checksum([two, one]), checksum([other, two]), checksum([one]), checksum([two])}
    assert len(found) == 5
    assert checksum([one.clone(), two.clone()]) == checksum([one, two])


@pytest.mark.long
def test_processes_that_read_other_text_train_nothing(tmp_path: Path, seqtrain: Seqtrain) -> None:
    for rank in range(2):
        corpus(tmp_path, lines=200 + rank).joinpath("corpus.txt").rename(tmp_path / f"{rank}.txt")
    answer = seqtrain(*TRAIN, "data.path=${oc.env:RANK,0}.txt", "run_dir=run", cwd=tmp_path)
    assert answer.rc == 2
    (line,) = [line for line in answer.err.splitlines() if "error" in line]
    assert re.match(r"error: process 1: the hash of train is .*, but .* in process 0; give all processes", line)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_shards_are_resumed_as_often_as_asked(optimizer: str, tmp_path: Path, seqtrain: Seqtrain) -> None:
    words = ("verify-resume", *TRAIN[1:], "trainer.strategy=fsdp", f"optimizer={optimizer}", "schedule=plateau")
    limits = ("trainer.max_steps=30", "trainer.validate_every=6", "trainer.checkpoint_every=5")
    answer = seqtrain(*words, *limits, "--kills", "2", cwd=corpus(tmp_path))
    assert answer.rc == 0, answer.err
    assert "equal to the bit" in answer.out


class Dying:
    """A process as its starter sees it, with the exit codes that it gives each time it is asked."""

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)
        self.sentinel, other = os.pipe()
        os.close(other)  # as where it has ended: readable

    @property
    def exitcode(self) -> int | None:
        return self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]


def test_a_process_that_dies_while_it_is_looked_at_is_not_overlooked() -> None:
    members = [Dying(0), Dying(None, -9)]
    assert launch._watch(members, {-1: 0, -2: 1}) == 1
    for member in members:
        os.close(member.sentinel)


def test_of_processes_that_are_found_dead_together_the_killed_one_is_the_cause() -> None:
    nobody = 1 << 30  # a number that no process has
    for codes, cause in (((1, -9), 1), ((-9, 1), 0), ((0, 2), 1), ((2, 0), 0), ((0, 0), 0)):
        members = [Dying(code) for code in codes]
        assert launch._watch(members, {nobody + rank: rank for rank in range(2)}) == cause, codes
        for member in members:
            os.close(member.sentinel)


def test_what_the_first_process_to_fail_ended_with_is_what_its_run_ends_with() -> None:
    memory = "process 1 was killed by SIGKILL (the machine may have run out of memory)"
    for code, expected in {
        0: launch.Outcome(0, ("said",)),
        2: launch.Outcome(2, ("said",)),
        143: launch.Outcome(143, ("said",)),
        -signal.SIGTERM: launch.Outcome(143),
        -signal.SIGSEGV: launch.Outcome(1, ("said", "process 1 was killed by SIGSEGV")),
        -signal.SIGKILL: launch.Outcome(1, ("said", memory)),
    }.items():
        assert launch._outcome(1, code, ["said", "said"][: 1 + (code > -1)]) == expected, code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("processes"))


@pytest.fixture(scope="module")
def twin(seqtrain: Seqtrain, folder: Path) -> Path:
    answer = seqtrain(*TRAIN, "run_dir=twin", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder / "twin"


@pytest.fixture
def running(seqtrain: Seqtrain, folder: Path, tmp_path: Path) -> Iterator[tuple[Child, Path]]:
    """A training in two processes that has begun, and its run."""
    run = tmp_path / "run"
    child = seqtrain.start(*TRAIN, f"run_dir={run}", cwd=folder)
    wait_until((run / "config.yaml").exists, child, "the run")
    wait_until(lambda: newest_step(run) >= 2, child, "step 2")
    yield child, run
    child.kill_group()
    child.close()


def members(child: Child) -> list[int]:
    """The processes of the group, in the order in which they were started."""
    return [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and "Z" not in _state(pid)]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "to"), [(signal.SIGTERM, "group"), (signal.SIGINT, "main"), (signal.SIGUSR1, "child")]
)
def test_a_signal_to_any_of_two_processes_ends_both_with_a_checkpoint(
    number: signal.Signals, to: str, running: tuple[Child, Path], twin: Path, seqtrain: Seqtrain, folder: Path
) -> None:
    child, run = running
    pids = members(child)
    assert len(pids) == 2
    if to == "main":
        child.kill(number)
    elif to == "group":
        os.killpg(child.pid, number)
    else:
        os.kill(pids[1], number)
    assert child.wait(PATIENCE) == 128 + number, child.stderr
    assert alive(pids) == []
    assert Run(run).summary.status == "interrupted"
    told = [line for line in child.stderr.splitlines() if "interrupted" in line or "rror" in line]
    assert told == [f"interrupted by {number.name}: `seqtrain resume {run}` continues from the last checkpoint"]
    checkpoint = newest_valid(run / "checkpoints", pytest.fail)
    assert checkpoint is not None
    assert newest_step(run) == int(checkpoint.stem.removeprefix("step-")), "no step was lost"
    answer = seqtrain("resume", str(run), cwd=folder)
    assert answer.rc == 0, answer.err
    assert_twins(twin, run)


@pytest.mark.long
@pytest.mark.parametrize("rank", [1, 0])
def test_a_process_that_dies_ends_the_others_and_the_run_can_be_resumed(
    rank: int, running: tuple[Child, Path], twin: Path, seqtrain: Seqtrain, folder: Path
) -> None:
    child, run = running
    pids = members(child)
    os.kill(pids[rank], signal.SIGKILL)
    assert child.wait(PATIENCE) == 1
    assert alive(pids) == []
    errors = [line for line in child.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, child.stderr
    assert f"process {rank} was killed by SIGKILL" in errors[0]
    assert f"`seqtrain resume {run}` starts again from step 0: no checkpoint was saved yet" in errors[0]
    assert Run(run).summary.status == "failed"
    answer = seqtrain("resume", str(run), cwd=folder)
    assert answer.rc == 0, answer.err
    assert_twins(twin, run)


def test_processes_die_with_the_one_that_started_them(running: tuple[Child, Path]) -> None:
    child, _ = running
    pids = members(child)
    child.kill()
    assert child.wait(PATIENCE) == -9
    limit = time.monotonic() + 5
    while alive(pids) and time.monotonic() < limit:
        time.sleep(0.01)
    assert alive(pids) == []


@pytest.mark.long
def test_weights_that_come_apart_are_found(seqtrain: Seqtrain, tmp_path: Path) -> None:
    corpus(tmp_path)
    package = tmp_path / "faulty"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "apart.py").write_text(
        "import os, torch\nfrom pytorch_lightning import Callback\n\n\nclass Apart(Callback):\n"
        "    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):\n"
        "        if trainer.global_step == 7 and os.environ['RANK'] == '1':\n"
        "            weight = next(pl_module.parameters())\n"
        "            with torch.no_grad():\n                weight[0, 0] += 1e-7\n"
    )
    callbacks = tmp_path / "configs" / "callbacks"
    callbacks.mkdir(parents=True)
    (callbacks / "apart.yaml").write_text("apart:\n  _target_: faulty.apart.Apart\n")
    given = ("--config-dir", "configs", "--trust", "faulty", "callbacks=apart", "trainer.check_ranks_every=5")
    answer = seqtrain(*TRAIN, *given, "run_dir=run", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert (answer.rc, len(errors)) == (1, 1), answer.err
    assert "step 11: the weights of process 1 differ from those of process 0" in errors[0]


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_worker_that_dies_ends_the_run_in_one_line(
    devices: int, seqtrain: Seqtrain, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    child = seqtrain.start(
        *TRAIN, f"trainer.devices={devices}", "data.workers=1", "trainer.max_steps=100000", f"run_dir={run}", cwd=folder
    )
    wait_until((run / "config.yaml").exists, child, "the run")
    wait_until(lambda: newest_step(run) >= 2, child, "step 2")
    below = [pid for member in [child.pid, *members(child)] for pid in _children(member)]
    cutters = [pid for pid in below if pid not in members(child)] if devices > 1 else below
    os.kill(cutters[-1], signal.SIGKILL)
    assert child.wait(PATIENCE) == 1
    errors = [line for line in child.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, child.stderr
    assert "a data worker died" in errors[0]
    assert "data.workers=0" in errors[0]
    assert Run(run).summary.status == "failed"
    child.close()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_lets_workers_live_until_the_last_step_is_saved(
    number: signal.Signals, seqtrain: Seqtrain, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    child = seqtrain.start(*TRAIN, "data.workers=2", "trainer.max_steps=100000", f"run_dir={run}", cwd=folder)
    wait_until((run / "config.yaml").exists, child, "the run")
    wait_until(lambda: newest_step(run) >= 2, child, "step 2")
    workers = _children(child.pid)
    os.killpg(child.pid, number)
    assert child.wait(PATIENCE) == 128 + number, child.stderr
    assert "Traceback" not in child.stderr
    assert Run(run).summary.status == "interrupted"
    assert len(workers) == 2
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
    child.close()


def _children(pid: int) -> list[int]:
    return [int(below) for below in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
