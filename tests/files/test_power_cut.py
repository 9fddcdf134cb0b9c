"""Laws of what a power cut leaves: nothing has its name, and nothing is counted on, before it is on the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqtrain.data.cache import Store, cached_json
from seqtrain.data.corpus import tokenised
from seqtrain.data.tokenizers.recipes import Byte
from seqtrain.files import folders
from seqtrain.files.atomic import atomic
from seqtrain.runs import checkpoint
from seqtrain.runs.directory import METRICS, Run
from seqtrain.training.callbacks.checkpoints import Checkpoints

NAMED = "named"  # what has got its name, among the paths that were brought to the disk


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was brought to the disk, by the name that it had then, and when something got its own name, in order."""
    found: list[str] = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def synced(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def named(do: Callable[..., None]) -> Callable[..., None]:
        return lambda *paths: (do(*paths), found.append(NAMED))[0]

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", named(rename))
    monkeypatch.setattr(os, "replace", named(replace))
    return found


def test_a_file_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(tmp_path: Path, done: list[str]) -> None:
    with atomic(tmp_path / "a.json") as file:
        file.write(b"1")
    assert done == [f".a.json.{os.getpid()}.tmp", NAMED, tmp_path.name]


def test_a_folder_that_appears_is_on_the_disk_with_all_that_it_holds(tmp_path: Path, done: list[str]) -> None:
    with folders.appearing(tmp_path / "made") as folder:
        for name in ("weights", "about"):
            (folder / name).write_text(name)
    before, after = done[: done.index(NAMED)], done[done.index(NAMED) + 1 :]
    assert {"weights", "about", folder.name} <= set(before)
    assert after == [tmp_path.name]


def test_an_entry_of_the_cache_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(
    tmp_path: Path, done: list[str]
) -> None:
    tokenised(Store(tmp_path), lambda: iter(["text"]), "train", Byte().train([]), lambda line: None)
    cached_json("key", lambda: 1, tmp_path)
    first = done.index(NAMED)
    assert sorted(done[:first]) == ["documents.bin", "meta.json", "tokens.bin"]
    assert done[first:] == [NAMED, "tokens", "value.json", NAMED, "json"]


def test_a_run_that_is_made_is_on_the_disk_with_its_config(tmp_path: Path, done: list[str]) -> None:
    Run.create(tmp_path / "run", config={"seed": 1}).close()
    assert done[-1] == tmp_path.name
    assert done[:-1].count(NAMED) == 2  # of the config, then of the folder
    assert done[0] == f".config.yaml.{os.getpid()}.tmp"


def test_records_are_on_the_disk_before_a_checkpoint_counts_on_them(tmp_path: Path, done: list[str]) -> None:
    run = Run.create(tmp_path / "run", config={"seed": 1})
    run.append({"step": 2})
    trainer = SimpleNamespace(
        global_step=2,
        lightning_module=SimpleNamespace(parameters=lambda: []),
        strategy=SimpleNamespace(reduce_boolean_decision=bool),
        save_checkpoint=lambda path: checkpoint.save({"global_step": 2}, path),
        is_global_zero=True,
    )
    done.clear()
    Checkpoints(run=run, every=1, keep_last=1, keep_best=1, signals=cast(Any, None))._save(cast(Any, trainer))
    assert done[0] == METRICS
    assert done[1:] == [f".{checkpoint.step_name(2)}.{os.getpid()}.tmp", NAMED, "checkpoints"]
