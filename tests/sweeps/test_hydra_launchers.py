"""Laws of what drives a launcher of Hydra's: how trials ended is read from the disk, whatever the launcher says."""

from __future__ import annotations

import itertools
import shlex
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.errors import UserError
from seqtrain.sweeps import launchers
from seqtrain.sweeps.folder import STOP, Asked, Status, Sweep, Trial
from seqtrain.sweeps.launchers import HydraLauncher, queued, submitted
from seqtrain.training.callbacks.signals import Interrupted


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits: a look at the disk follows the other."""
    pause = threading.Event().wait
    monkeypatch.setattr(
        launchers, "time", SimpleNamespace(sleep=lambda _: pause(0.001), monotonic=itertools.count().__next__)
    )


@pytest.fixture
def trials(tmp_path: Path) -> list[Trial]:
    """Three planned ones."""
    sweep = Sweep.create(tmp_path / "a sweep", Asked(()))
    return [sweep.plan(number, [f"seed={number}"], f"seed={number}") for number in range(3)]


class Launcher:
    """Stands for one of Hydra's: does with each trial of a batch what `deed` says."""

    def __init__(self, sweep: Path, deed: Callable[[Trial], None]) -> None:
        self.sweep, self.deed = Sweep.open(sweep), deed
        self.batches: list[tuple[list[str], int]] = []

    def launch(self, jobs: list[list[str]], first: int) -> None:
        self.batches.append(([word for job in jobs for word in job], first))
        for number in range(first, first + len(jobs)):
            self.deed(self.sweep.trial(number))


def driver(trials: list[Trial], deed: Callable[[Trial], None], *, together: int | None = None) -> tuple[Any, list[str]]:
    """What drives a launcher that does so, and what it says."""
    said: list[str] = []
    made: Any = HydraLauncher(Launcher(trials[0].sweep, deed), trials[0].sweep, said.append, together=together)  # type: ignore[arg-type]
    return made, said


def finish(trial: Trial) -> None:
    trial.conclude("finished")


def numbers(found: Any) -> list[int]:
    return [trial.number for trial in found]


def test_as_many_trials_are_handed_out_as_may_run_together_each_by_its_directory(trials: list[Trial]) -> None:
    for together, sizes in ((None, [3]), (2, [2, 1]), (1, [1, 1, 1])):
        made, _ = driver(trials, finish, together=together)
        assert numbers(made.run(iter(trials))) == [0, 1, 2]
        firsts = [sum(sizes[:batch]) for batch in range(len(sizes))]
        assert [(first, len(words)) for words, first in made.launcher.batches] == list(zip(firsts, sizes, strict=True))
        assert made.launcher.batches[0] == ([f"run_dir='{trial.path}'" for trial in trials[: sizes[0]]], 0)


def test_a_trial_is_given_back_as_soon_as_it_has_ended_and_not_with_the_last_of_its_batch(trials: list[Trial]) -> None:
    seen = threading.Event()

    def deed(trial: Trial) -> None:
        assert trial.number == 0 or seen.wait(20), "the first one was not given back before the second ended"
        finish(trial)

    made, said = driver(trials, deed)
    given = made.run(iter(trials))
    assert next(given).number == 0
    seen.set()
    assert numbers(given) == [1, 2]
    assert said == []


def test_what_a_launcher_has_left_undone_is_given_back_as_it_stands(trials: list[Trial]) -> None:
    made, said = driver(trials, lambda trial: finish(trial) if trial.number == 1 else None)
    assert sorted(numbers(made.run(iter(trials)))) == [0, 1, 2]
    assert [trial.outcome["status"] for trial in trials] == ["planned", "finished", "planned"]
    assert said == []


def test_a_launcher_that_runs_nothing_is_a_fault_and_one_that_gives_up_later_is_said(trials: list[Trial]) -> None:
    def refuse(trial: Trial) -> None:
        raise RuntimeError("no room\nfor you")

    line = "hydra.launcher: RuntimeError: no room"
    made, _ = driver(trials, refuse)
    with pytest.raises(UserError, match=f"^{line}"):
        list(made.run(iter(trials)))
    made, said = driver(trials, lambda trial: refuse(trial) if trial.number else finish(trial))
    assert sorted(numbers(made.run(iter(trials)))) == [0, 1, 2]
    assert len(said) == 1
    assert said[0].startswith(line)


# -- jobs ----------------------------------------------------------------------------------------------------------


def submit(sweep: Path, attempt: str, *jobs: str) -> None:
    """Leaves what Submitit leaves when it has submitted these jobs."""
    for job in jobs:
        (sweep / launchers.SUBMITIT / attempt / job).mkdir(parents=True)
        (sweep / launchers.SUBMITIT / attempt / job / f"{job}_submitted.pkl").touch()


def test_an_array_of_jobs_is_one_job_and_those_of_earlier_sittings_are_not_of_this_one(trials: list[Trial]) -> None:
    sweep = trials[0].sweep
    submit(sweep, "first", "7_0", "7_1")
    made, _ = driver(trials, finish)
    submit(sweep, "second", "12_0", "12_1", "5")
    assert made._jobs() == ["12", "5"]
    assert submitted(launchers.attempts(sweep)) == ["12", "5", "7"]


def test_the_queue_is_asked_for_these_jobs_alone_and_has_none_where_there_is_no_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert queued(["7", "12"]) == ""
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\nfor word; do case $word in 7,12) echo 7_0; echo "  12_[1-3]";; esac; done\n')
    squeue.chmod(0o755)
    assert queued(["7", "12"]) == "7_0 12_[1-3]"
    squeue.write_text("#!/bin/sh\necho slurm_load_jobs error: Invalid job id specified >&2; exit 1\n")
    assert queued(["7", "12"]) == "", "they ended long ago"
    squeue.write_text("#!/bin/sh\necho slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1\n")
    assert queued(["7", "12"]) == "7 12", "a controller that does not answer has not ended anything"
    squeue.write_text("#!/bin/sh\necho all of them\n")
    assert queued([]) == ""


def test_trials_that_are_jobs_are_over_when_the_queue_is_empty_and_not_when_their_launcher_leaves(
    trials: list[Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(["7_0 7_1", "7_1", ""])
    made, _ = driver(trials, lambda trial: None)
    submit(trials[0].sweep, "now", "7_0", "7_1", "7_2")
    monkeypatch.setattr(launchers, "queued", lambda jobs: next(looks))
    assert numbers(made.run(iter(trials))) == [0, 1, 2]
    assert list(looks) == []


def test_a_batch_is_not_over_while_only_the_job_of_the_batch_before_it_has_ended(
    trials: list[Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Event()

    def deed(trial: Trial) -> None:
        if trial.number:
            looks.wait(0.2)  # Submitit takes a while; meanwhile the queue holds nothing of this sweep
        submit(trial.sweep, "now", str(7 + trial.number))
        finish(trial)

    def queued(jobs: list[str]) -> str:
        return " ".join(job for job in jobs if trials[int(job) - 7].recorded != "finished")

    monkeypatch.setattr(launchers, "queued", queued)
    made, _ = driver(trials, deed, together=1)
    assert [trial.recorded for trial in made.run(iter(trials))] == ["finished"] * 3


# -- leaving -------------------------------------------------------------------------------------------------------


def interrupted(made: Any, trials: list[Trial], number: int) -> None:
    """The sitting is asked to leave once the first trial has ended."""
    given = made.run(iter(trials))
    assert next(given).number == 0
    with pytest.raises(Interrupted):
        given.throw(Interrupted(number))


def test_a_signal_reaches_what_runs_as_it_came_and_what_stays_is_killed(
    trials: list[Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(launchers.os, "kill", lambda pid, number: sent.append((pid, number)))
    left: list[tuple[Status, int]] = [("finished", 0), ("running", 4711), ("planned", 0)]
    for trial, (status, pid) in zip(trials, left, strict=True):
        trial.conclude(status, pid=pid)
    made, _ = driver(trials, lambda trial: None)
    made._is_over = lambda launching: False
    interrupted(made, trials, signal.SIGUSR1)
    assert sent == [(4711, signal.SIGUSR1), (4711, signal.SIGKILL)]
    assert (trials[0].sweep / STOP).exists(), "so that what has not begun does not begin"


def test_jobs_are_cancelled_where_they_were_submitted_and_no_process_of_this_machine_is_signalled(
    trials: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/cancelled\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(launchers.os, "kill", lambda pid, number: pytest.fail(f"{pid} may be anybody's here"))

    made, said = driver(trials, lambda trial: None)
    submit(trials[0].sweep, "now", "7_0", "7_1", "7_2")
    for trial, status in zip(trials, ("finished", "running", "running"), strict=True):
        trial.conclude(status, pid=4711)
    made._is_over = lambda launching: False
    interrupted(made, trials, signal.SIGTERM)
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert said == [
        f"cancelling 7; `seqtrain resume {shlex.quote(str(trials[0].sweep))}` submits what is missing again"
    ]
