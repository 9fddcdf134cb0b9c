"""Laws of one trial, and of our launcher: what is begun, with what, and what is recorded of how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from seqtrain.cli import trial as trials
from seqtrain.config.trust import trusting
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps import launchers
from seqtrain.sweeps.folder import STOP, Sweep
from seqtrain.sweeps.launchers import Local
from seqtrain.training.callbacks.signals import Interrupted
from tests.support import fake_runs
from tests.support.fake_runs import ended


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A sweep with a trial of each status."""
    return fake_runs.of_each_status(tmp_path / "sweep")


def test_a_trial_begins_or_goes_on_and_one_that_has_come_to_its_end_is_left_alone(sweep: Sweep) -> None:
    todo = {trial.status: trials._todo(trial) for trial in sweep.trials()}
    assert todo == {
        **{"finished": None, "pruned": None, "failed": "resume", "interrupted": "resume"},
        **{"refused": "begin", "planned": "begin"},
    }
    (sweep.path / STOP).touch()
    assert {trials._todo(trial) for trial in sweep.trials()} == {None}, "the sitting is being ended"


def test_a_trial_that_another_process_writes_is_left_to_it(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "is_written", lambda run: run.name == "004")
    assert trials._todo(sweep.trial(4)) is None


def test_of_a_trial_whose_run_has_begun_the_run_says_how_it_ended(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = sweep.trial(4)

    def ends(*_: object) -> Run:
        ended(trial, "pruned", "behind")
        return Run(trial.path)

    monkeypatch.setattr(trials, "finish", lambda run, as_json: 0)
    monkeypatch.setattr(trials, "_run", ends)
    trials._run_recorded(trial, "resume", sweep, None)
    assert (trial.outcome["status"], trial.outcome["reason"]) == ("pruned", "behind")


def test_what_a_trial_prints_stands_behind_what_it_printed_before_and_in_no_file_of_others(tmp_path: Path) -> None:
    log, outside = tmp_path / "log", tmp_path / "outside"
    log.write_text("first\n")
    kept = [os.dup(number) for number in (1, 2)]
    try:
        trials._redirect(log)
        os.write(1, b"second\n")
        os.write(2, b"third\n")
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
    assert log.read_text() == "first\nsecond\nthird\n"
    log.unlink()
    log.symlink_to(outside)
    with pytest.raises(UserError, match="a link that leads out"):
        trials._redirect(log)
    assert not outside.exists()


def test_a_trial_has_the_threads_of_its_share_unless_it_asks_for_others(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[Any] = []
    monkeypatch.setattr(trials, "start", lambda composed, request: configs.append(composed.config))
    for number, (typed, threads) in enumerate([("seed=1", 3), ("trainer.threads=2", 2)], 9):
        trial = sweep.plan(number, [typed], typed)
        trials._run(trial, "begin", sweep, 3)
        assert (configs[-1].trainer.threads, configs[-1].run_dir) == (threads, str(trial.path))


# -- our launcher ------------------------------------------------------------------------------------------------


class Server:
    """Stands for the fork server: a trial has finished as soon as it is begun."""

    begun: list[tuple[list[str], dict[str, str]]]

    def __init__(self, *_: object, **__: object) -> None:
        Server.begun = []

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left."""

    def popen(self, words: list[str], *, env: dict[str, str]) -> Any:
        Sweep.open(words[1]).trial(int(words[2])).conclude("finished")
        Server.begun.append((words, env))
        reader, writer = os.pipe()
        os.close(writer)  # `select` finds it readable
        return Ended(reader)


@dataclass(frozen=True)
class Ended:
    """A process that has ended, with this exit status."""

    line: int = -1
    code: int = 0
    stderr: str = ""

    def fileno(self) -> int:
        return self.line

    def poll(self) -> int:
        return self.code

    def close(self) -> None:
        if self.line >= 0:
            os.close(self.line)


def test_every_slot_has_its_share_of_gpus_and_cores_and_its_trials_are_trusted_as_their_sweep_was(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "ForkServer", Server)
    monkeypatch.setattr(launchers.os, "sched_getaffinity", lambda pid: set(range(7)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    said: list[str] = []
    launcher = Local(n_jobs=2)
    launcher.say = said.append
    with trusting(["mine", "theirs"]):
        assert [trial.number for trial in launcher.run(iter(sweep.trials()[:3]))] == [0, 1, 2]
    assert said == ["2 trials at a time, each with 3 threads and GPUs 0,1 | 2,3"]
    assert [env["CUDA_VISIBLE_DEVICES"] for _, env in Server.begun] == ["0,1", "2,3", "0,1"]
    assert {env["OMP_NUM_THREADS"] for _, env in Server.begun} == {"3"}
    trusted = ("--trust", "mine", "--trust", "theirs", "--threads=3")
    assert [words for words, _ in Server.begun] == [["trial", str(sweep.path), f"00{n}", *trusted] for n in (0, 1, 2)]


def test_nothing_is_imported_for_a_sweep_that_has_no_trial_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "ForkServer", None)
    assert list(Local().run(iter(()))) == []


def test_threads_are_left_to_whoever_has_said_something_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Local(n_jobs=1)._threads() is None
    assert Local(n_jobs=10**6)._threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert Local(n_jobs=2)._threads() is None
    assert Local(n_jobs=2, threads=4)._threads() == 4


def test_a_process_that_could_not_say_how_its_trial_ended_is_spoken_for(sweep: Sweep) -> None:
    trial = sweep.trial(5)
    for status, code, stderr, *ends in (
        ("running", 1, "Traceback\nOSError: no space\n", "failed", "OSError: no space"),
        ("running", 3, "", "failed", "its process ended with 3"),
        ("running", -9, "", "failed", "its process was killed by SIGKILL (the machine may have run out of memory)"),
        ("running", -15, "", "failed", "its process was killed by SIGTERM"),
        ("interrupted", 143, "", "planned", ""),
        ("refused", 2, "error: too small", "refused", ""),
    ):
        trial.conclude(cast(Any, status))
        launchers._after(trial, cast(Any, Ended(code=code, stderr=stderr)))
        assert [trial.status, trial.reason] == ends, code


@dataclass
class Running:
    """A process that saves and leaves when it is asked to, or does not."""

    leaves: bool
    told: list[object] = field(default_factory=list)

    def __hash__(self) -> int:
        return id(self)

    def kill(self, number: int) -> None:
        self.told.append(number)

    def wait(self, timeout: float) -> int:
        if not self.leaves:
            raise subprocess.TimeoutExpired("trial", timeout)
        self.told.append("waited for")
        return 0

    def kill_group(self) -> None:
        self.told.append("killed")

    def close(self) -> None:
        self.told.append("closed")


def test_what_ends_a_sitting_reaches_its_trials_as_it_came_and_nothing_is_left_of_them(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (Interrupted(signal.SIGINT), Interrupted(signal.SIGUSR1), RuntimeError("a bug")):
        processes = [Running(leaves=False), Running(leaves=True)]

        class Busy(Server):
            begun_now = iter(processes)

            def popen(self, words: list[str], *, env: dict[str, str]) -> Any:
                return next(self.begun_now)

        def select(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(launchers, "ForkServer", Busy)
        monkeypatch.setattr(launchers.select, "select", select)
        with pytest.raises(type(error)):
            list(Local(n_jobs=2).run(iter(sweep.trials())))
        number = getattr(error, "number", signal.SIGTERM)
        assert [process.told for process in processes] == [
            [number, "killed", "closed"],
            [number, "waited for", "killed", "closed"],
        ]
