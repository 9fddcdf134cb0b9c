"""Laws of the process that a launcher of Hydra's has for each trial: what it starts, and when it leaves."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.sweeps import launchers


class Process:
    """Stands for the process of a trial, which ends with `code` the first time that somebody waits for it."""

    def __init__(self, words: list[str], env: dict[str, str], code: int, wait: Callable[[], None]) -> None:
        self.words, self.env, self.returncode, self._wait = words, env, code, wait
        self.over = False
        self.told: list[str] = []
        self.deaf = signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN

    def poll(self) -> int | None:
        return self.returncode if self.over else None

    def wait(self, timeout: float) -> None:
        self.over = True
        self._wait()

    def terminate(self) -> None:
        self.told.append("terminate")

    def kill(self) -> None:
        self.told.append("kill")


Begun = Callable[..., tuple[Any, list[Process]]]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Begun:
    """Runs a trial whose process ends with this code; `wait` is called on the way. Gives what came of it."""

    def run(code: int = 0, wait: Callable[[], None] = lambda: None) -> tuple[Any, list[Process]]:
        made: list[Process] = []

        def popen(words: list[str], *, env: dict[str, str]) -> Process:
            made.append(Process(words, env, code, wait))
            return made[0]

        monkeypatch.setattr(launchers.subprocess, "Popen", popen)
        config: Any = SimpleNamespace(run_dir=str(tmp_path / "sweep" / "007"))
        try:
            return launchers.run_trial(config, words=("--trust", "mine")), made
        except BaseException as error:
            return error, made

    return run


def test_a_trial_is_a_command_of_its_own_with_its_code_and_no_place_among_the_processes_of_others(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)
    for name in ("RANK", "MASTER_PORT", "SLURM_PROCID"):
        monkeypatch.setenv(name, "1")
    code, (process,) = begun(3)
    trial = ["trial", str(tmp_path / "sweep"), "007", "--trust", "mine"]
    assert (code, process.words) == (3, [sys.executable, "-P", "-m", "seqtrain", *trial])
    assert not {"RANK", "MASTER_PORT", "SLURM_PROCID"} & process.env.keys()
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    _, (process,) = begun()
    assert process.env["SLURM_PROCID"] == "1", "the tasks of a job are the processes of its trial"
    assert not {"RANK", "MASTER_PORT"} & process.env.keys()


def test_under_submitit_a_trial_is_deaf_to_the_signal_that_its_time_is_up_and_who_started_it_is_not(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    former = signal.signal(signal.SIGUSR2, print)
    try:
        _, (process,) = begun()
        assert process.deaf
        assert signal.getsignal(signal.SIGUSR2) is print
    finally:
        signal.signal(signal.SIGUSR2, former)


def test_who_is_asked_to_leave_asks_the_trial_and_waits_for_it(begun: Begun) -> None:
    waits: list[bool] = []

    def asked() -> None:
        waits.append(True)
        if len(waits) == 1:
            raise KeyboardInterrupt

    error, (process,) = begun(143, asked)
    assert isinstance(error, KeyboardInterrupt)
    assert process.told == ["terminate"]
    assert len(waits) == 2


def test_a_trial_does_not_outlive_who_started_it(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([2, 1])
    monkeypatch.setattr(launchers.os, "getppid", lambda: next(parents))
    _, (process,) = begun()
    assert process.told == ["kill"]


def test_a_job_that_is_requeued_leaves_no_result_which_would_say_that_it_is_done(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(launchers.os, "_exit", exits.append)
    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)
    assert begun(143)[0] == 143
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    assert begun(1)[0] == 1
    assert exits == []
    assert begun(143)[0] == 143
    assert exits == [143]
