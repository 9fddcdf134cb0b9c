"""Folders in folders without end: what a stranger unpacked beside a run, or in it, is one line and hides no other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqtrain.errors import UserError
from seqtrain.files.atomic import walked
from seqtrain.runs.directory import Run, list_runs

DEPTH = 1500  # Python itself gives up before


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A run with folders in folders below it, and another one beside it."""
    run = Run.create(tmp_path / "runs" / "deep")
    run.close()
    Run.create(tmp_path / "runs" / "other").close()
    _descend(run.path)
    yield run.path
    subprocess.run(["rm", "-rf", tmp_path / "runs"], check=True)  # what pytest removes it by gives up, too


def _descend(folder: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(DEPTH):
            os.mkdir("d")
            os.chdir("d")
        Path("a.txt").touch()
    finally:
        os.fchdir(here)
        os.close(here)


def test_a_run_of_folders_in_folders_is_one_line_and_hides_no_other(deep: Path) -> None:
    with pytest.raises(UserError, match=f"^{deep}: folders are nested more than"):
        Run.open(deep)
    assert [run.path.name for run in list_runs(deep.parent)] == ["deep", "other"]
    assert [run.path.name for run in list_runs(deep / "d")] == []


def test_a_walk_is_that_of_the_system(tmp_path: Path) -> None:
    for name in ("b/c", "a", "b/a/d"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b")
    (tmp_path / "a" / "nowhere").symlink_to("gone")

    def ordered(steps) -> list:
        found = []
        for folder, below, files in steps:
            below.sort()
            found.append((folder, [*below], sorted(files)))
            if "c" in below:
                below.remove("c")
        return found

    assert ordered(walked(tmp_path, print)) == ordered(os.walk(tmp_path))
    errors: list[OSError] = []
    assert [*walked(tmp_path / "gone", errors.append)] == []
    assert [error.filename for error in errors] == [str(tmp_path / "gone")]
