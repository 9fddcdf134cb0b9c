"""How a sweep's directory comes to be, and where its relative paths lead."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import yaml

from seqtrain.cli import sweep as command
from seqtrain.cli import trial
from seqtrain.errors import UserError
from seqtrain.files import atomic
from seqtrain.files.atomic import locked
from seqtrain.sweeps import attempts
from seqtrain.sweeps.folder import Asked, Sweep, is_sweep
from tests.support import fake_runs


def test_a_sweep_that_can_be_seen_is_whole_and_held_by_who_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename
    seen: list[bool] = []

    def look(source: Path, target: Path) -> None:
        seen.append(target.exists())
        rename(source, target)
        assert is_sweep(target)
        pid = os.fork()  # locks are of a process
        if not pid:
            os._exit(locked(target / ".lock") is not None)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "another process got the lock"

    monkeypatch.setattr(atomic.os, "rename", look)
    sweep = Sweep.create(tmp_path / "deep" / "sweep", Asked(("seed=1,2",)))
    assert seen == [False]
    assert sweep.asked == Asked(("seed=1,2",))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["sweep"]


def _create(path: Path, barrier: Barrier, results: multiprocessing.SimpleQueue) -> None:
    barrier.wait()
    try:
        sweep = Sweep.create(path, Asked((f"seed={os.getpid()}",)))
        results.put(sweep.asked.overrides[0])
    except UserError as fault:
        results.put(str(fault))
    barrier.wait()  # the lock is held until all have asked


@pytest.mark.parametrize("empty_folder", [False, True])
def test_of_several_that_ask_for_the_same_sweep_exactly_one_gets_it(tmp_path: Path, empty_folder: bool) -> None:
    context = multiprocessing.get_context("fork")
    path = tmp_path / "sweep"
    if empty_folder:
        path.mkdir()
    barrier, results = context.Barrier(4), context.SimpleQueue()
    processes = [context.Process(target=_create, args=(path, barrier, results)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    said = [results.get() for _ in processes]
    winners = [line for line in said if line.startswith("seed=")]
    assert winners == list(Sweep.open(path).asked.overrides), said
    assert all("exists already" in line or "another process" in line for line in said if line not in winners), said
    assert sorted(each.name for each in tmp_path.iterdir()) == ["sweep"]


def test_an_empty_folder_is_taken_as_it_is_and_so_is_one_in_which_a_start_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "mount"
    path.mkdir()
    inode = path.stat().st_ino
    (path / ".lock").touch()
    (path / ".sweep.yaml.4711.tmp").touch()
    Sweep.create(path, Asked(()))
    assert path.stat().st_ino == inode, "it may be a mount, or where the user stands"
    shutil.rmtree(path)
    (path / "trials").mkdir(parents=True)
    (path / "trials" / "000.json").touch()
    with pytest.raises(UserError, match="not an empty folder"):
        Sweep.create(path, Asked(()))


def test_what_starts_that_were_killed_left_beside_a_sweep_is_removed_by_the_next_start(tmp_path: Path) -> None:
    dead, held = (tmp_path / f".new-0000000{number}.tmp" for number in (1, 2))
    for folder in (dead, held):
        folder.mkdir()
        (folder / ".lock").touch()
    pid = os.fork()
    if not pid:
        locked_by_us = locked(held / ".lock")
        assert locked_by_us is not None
        (tmp_path / "held").touch()
        while not (tmp_path / "sweep").exists() and os.getppid() != 1:
            time.sleep(0.01)
        os._exit(0)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    Sweep.create(tmp_path / "sweep", Asked(()))
    os.waitpid(pid, 0)
    assert not dead.exists()
    assert held.exists(), "of a start that goes on"


def test_a_resume_removes_what_was_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = fake_runs.of_each_status(tmp_path / "sweep")
    left = [
        sweep.path / name
        for name in (".index.json.1.tmp", "trials/.000.json.1.tmp", "logs/.x.1.tmp", ".new-0123abcd.tmp")
    ]
    for path in left[:-1]:
        path.touch()
    left[-1].mkdir()
    (left[-1] / "config.yaml").touch()
    monkeypatch.setattr(attempts, "_run_trials", lambda *_, **__: [])
    with pytest.raises(UserError, match="nothing to do"):
        command.resume(sweep.path, [], retry_failed=False, as_json=False)
    assert [path for path in left if path.exists()] == []


# -- relative paths ------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a sweep `sweep` was begun, which is not the working one."""
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "there")
    Sweep.create("sweep", Asked(("seed=1,2",), config_dirs=("mine",)))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "there"


def test_relative_paths_of_a_sweep_are_held_against_where_it_was_begun(begun: Path) -> None:
    said: list[str] = []
    sweep = Sweep.open(Path("../there/sweep")).where_it_began(said.append)
    assert os.path.samefile(Path.cwd(), begun)
    assert is_sweep(sweep.path)
    assert said == [f"relative paths start from {begun}, where the sweep was begun"]
    assert sweep.where_it_began(said.append) is sweep
    assert len(said) == 1


def test_where_the_folder_in_which_a_sweep_was_begun_has_gone_that_is_said(begun: Path) -> None:
    here, said = Path.cwd(), []
    shutil.move(begun / "sweep", here / "sweep")
    begun.rmdir()
    sweep = Sweep.open("sweep").where_it_began(said.append)
    assert (sweep.path, Path.cwd()) == (Path("sweep"), here)
    assert said == [f"{begun}, where the sweep was begun: No such file or directory; relative paths start from {here}"]


def test_a_folder_that_no_sweep_was_begun_in_is_a_fault_or_said(begun: Path) -> None:
    asked = yaml.safe_load((begun / "sweep" / "sweep.yaml").read_text())
    for where in ("a\0b", "", 5, None, "x" * 5000):
        said: list[str] = []
        (begun / "sweep" / "sweep.yaml").write_text(yaml.safe_dump(asked | {"cwd": where}))
        try:
            Sweep.open("../there/sweep").where_it_began(said.append)
        except UserError as fault:
            said += fault.lines
        assert len(said) == 1, where


def test_a_resume_and_a_trial_look_where_the_sweep_was_begun(begun: Path) -> None:
    with pytest.raises(UserError, match="--config-dir mine: no such folder"):
        command.resume(Path("../there/sweep"), [], retry_failed=False, as_json=False)
    assert os.path.samefile(Path.cwd(), begun)
    os.chdir(begun.parent)
    with pytest.raises(UserError, match="no trial 007"):
        trial.main(["there/sweep", "7"])
    assert os.path.samefile(Path.cwd(), begun)
