"""Laws of who writes a run: one process, and those that it started; others can tell that it does."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from seqtrain.errors import UserError
from seqtrain.files.folders import LOCK
from seqtrain.runs.directory import Run, is_written, stands
from seqtrain.runs.summary import Summary


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "outputs" / "run")
    run.write_config({"seed": 1})
    return run


def _check_checkpoint(path: Path, line: Connection) -> None:
    run = Run.open(path)
    run.claim()
    line.send("held")
    line.recv()


@pytest.fixture
def held(run: Run) -> Iterator[Path]:
    """The run, which another process writes."""
    run.close()
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe()
    holder = forked.Process(target=_check_checkpoint, args=(run.path, theirs))
    holder.start()
    assert ours.recv() == "held"
    yield run.path
    ours.send("leave")
    holder.join()


def test_a_run_is_running_as_long_as_a_process_writes_it_and_was_interrupted_else(held: Path, tmp_path: Path) -> None:
    alone = Run.create(tmp_path / "alone").path
    stood = {path: stands(path, Summary(status="running")) for path in (held, alone)}
    assert stood == {held: "running", alone: "interrupted"}
    assert (stands(held, Summary(status="finished")), stands(held, Summary())) == ("finished", "interrupted")


def test_whether_a_run_is_written_can_be_asked_of_any_folder_and_leaves_nothing_there(tmp_path: Path) -> None:
    assert not is_written(tmp_path)
    assert not is_written(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_who_was_started_by_the_writer_of_a_run_may_write_it_too(held: Path) -> None:
    with pytest.raises(UserError, match="is being written by another process: wait for it or stop it"):
        Run(held).claim()
    Run(held, claimed=True).claim()


def test_a_writer_whose_lock_was_removed_writes_nothing_more_for_another_may_have_it(run: Run) -> None:
    run.append({"step": 1})
    (run.path / LOCK).unlink()
    other = Run.open(run.path)
    other.claim()
    with pytest.raises(FileNotFoundError):
        run.append({"step": 2})
    other.append({"step": 2})
    assert run.lost()
    assert not other.lost()
    other.close()


def test_a_worker_forked_by_a_killed_writer_does_not_hold_the_run(run: Run) -> None:
    script = (
        "import os, sys, time; from seqtrain.runs.directory import Run\n"
        "run = Run.open(sys.argv[1]); run.claim()\n"
        "if os.fork(): os._exit(0)\n"
        "os.close(1); time.sleep(20)"
    )
    run.close()
    subprocess.run([sys.executable, "-c", script, str(run.path)], stdout=subprocess.PIPE)
    run.claim()
