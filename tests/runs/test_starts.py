"""Laws of the first moment of a run: its directory is there with its config, or the same command can make it."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from benchmarks.kills.hook import killed_before
from seqtrain.config.preflight import _place
from seqtrain.errors import UserError
from seqtrain.files import folders
from seqtrain.runs import directory
from seqtrain.runs.directory import LOCK, METRICS, Run, is_written, list_runs

CONFIG = {"seed": 1}


def _absent(path: Path) -> None:
    """Nothing is there."""


def _linked(path: Path) -> None:
    (path.parent / "elsewhere").mkdir()
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("before", [_absent, Path.mkdir, _linked], ids=["absent", "empty", "linked"])
def test_a_start_that_is_killed_anywhere_is_a_run_or_can_be_made_again(
    before: Callable[[Path], None], tmp_path: Path
) -> None:
    for number in count():
        path = tmp_path / str(number) / "run"
        path.parent.mkdir()
        before(path)
        if not killed_before(number, lambda path=path: Run.create(path, config=CONFIG), below=tmp_path):
            break
        if (path / "config.yaml").exists():
            assert Run.open(path).config == CONFIG
            continue
        assert list_runs(path.parent) == []
        assert not path.exists() or [*_place(str(path))] == []
        with pytest.raises(UserError, match=r"does not exist|has no config\.yaml") as fault:
            Run.open(path)
        assert len(fault.value.lines) == 1
        run = Run.create(path, config=CONFIG)
        assert {found.name for found in path.iterdir()} == {"config.yaml", LOCK}
        assert {found.name for found in path.parent.iterdir()} <= {"run", "elsewhere"}, "something is left over"
        run.close()
    assert number >= 3


def test_a_folder_that_was_there_is_filled_and_not_replaced(tmp_path: Path) -> None:
    before = tmp_path.stat().st_ino
    run = Run.create(tmp_path, config=CONFIG)
    assert (tmp_path.stat().st_ino, run.config) == (before, CONFIG)


def test_a_refused_run_that_is_killed_while_it_is_removed_can_be_made_again(tmp_path: Path) -> None:
    for number in count():
        path = tmp_path / str(number) / "run"
        Run.create(path, config=CONFIG).close()
        (path / "summary.json").touch()
        (path / "checkpoints").mkdir()
        if not killed_before(number, lambda path=path: directory.remove(path), below=tmp_path):
            break
        if number:
            Run.create(path, config=CONFIG).close()
        assert [found.name for found in path.parent.iterdir()] == ["run"]
    assert number > 3


def test_a_start_removes_what_dead_ones_left_and_nothing_of_a_living_one(tmp_path: Path) -> None:
    assert killed_before(3, lambda: Run.create(tmp_path / "dead"), below=tmp_path)
    (left,) = tmp_path.glob(folders.STAGED)
    with folders.appearing(tmp_path / "living") as living:
        assert not killed_before(99, lambda: Run.create(tmp_path / "of another process"), below=tmp_path)
        Run.create(tmp_path / "of this one")
        assert living.exists()
        assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["living", "of another process", "of this one"]
    assert list((tmp_path / "living").iterdir()) == []


def test_a_place_that_another_process_fills_is_taken(tmp_path: Path) -> None:
    lock = folders.locked(tmp_path / LOCK)
    assert lock is not None
    pid = os.fork()
    if not pid:
        with pytest.raises(UserError, match="exists already"):
            Run.create(tmp_path)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not (tmp_path / "config.yaml").exists()


def test_who_reads_a_run_makes_no_folder_and_no_lock_in_it(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", config=CONFIG).close()
    (tmp_path / "run" / LOCK).unlink()
    run = Run.open(tmp_path / "run")
    found = (run.checkpoints, run.samples, run.plots, run.metrics(), run.summary.to_plain(), is_written(run.path))
    assert found[3:] == ([], {}, False)
    assert [path.name for path in run.path.iterdir()] == ["config.yaml"]


def test_what_killed_writers_left_in_a_run_is_removed_before_it_goes_on(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config=CONFIG)
    left = [folder / ".torn.7.tmp" for folder in (run.path, run.checkpoints, run.samples, run.plots)]
    for path in left:
        path.touch()
    mine = run.path / "notes.tmp"
    mine.touch()
    run.probe()
    assert [path.exists() for path in (*left, mine)] == [False] * 4 + [True]
    assert {path.name for path in run.path.iterdir() if path.is_file()} == {"config.yaml", LOCK, METRICS, "notes.tmp"}


def test_a_link_that_is_named_like_a_folder_on_its_way_is_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / ".new-01234567.tmp").symlink_to(outside)
    Run.create(tmp_path / "run", config=CONFIG).close()
    assert list(outside.iterdir()) == []
    assert (tmp_path / ".new-01234567.tmp").is_symlink()
