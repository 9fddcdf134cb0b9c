"""Laws of checkpoint files."""

from __future__ import annotations

import os
import pathlib
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from seqtrain.errors import UserError
from seqtrain.runs.checkpoint import keep_newest, load, newest_valid, probe, save, step_name
from seqtrain.training.callbacks.checkpoints import AtomicCheckpointIO
from tests.support.checkpoints import is_valid


class Payload:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("made_by_a_checkpoint",)


def _silent(line: str) -> None:
    raise AssertionError(line)


def _state(seed: int = 0) -> dict:
    torch.manual_seed(seed)
    moments = {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(5)}}
    return {
        "weights": torch.randn(64, 64),
        "optimizer": {"state": moments, "lr": [1e-3]},
        "step": seed,
        "global_step": seed,
    }


def _equal(one: dict, two: dict) -> bool:
    same = torch.equal(one["weights"], two["weights"]) and one["step"] == two["step"]
    return same and torch.equal(one["optimizer"]["state"][0]["exp_avg"], two["optimizer"]["state"][0]["exp_avg"])


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    save(_state(), tmp_path / "new" / "a.ckpt")
    assert _equal(load(tmp_path / "new" / "a.ckpt"), _state())


def test_a_tensor_of_a_checkpoint_begins_where_torch_begins_one_whatever_stands_before_it(tmp_path: Path) -> None:
    for length in range(0, 64, 3):  # the header grows with it; what is multiplied depends on its place in memory
        save({"words": "w" * length, "odd": torch.ones(5), "weights": torch.ones(64)}, tmp_path / "a.ckpt")
        found = load(tmp_path / "a.ckpt")
        assert found["odd"].data_ptr() % 64 == found["weights"].data_ptr() % 64 == 0, length


def test_a_flipped_byte_is_detected_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    save(_state(), path)
    whole = path.read_bytes()
    generator, caught = random.Random(0), 0
    for place in generator.sample(range(len(whole)), 300):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << generator.randrange(8))]) + whole[place + 1 :])
        if not is_valid(path):
            with pytest.raises(UserError, match="damaged"):
                load(path)
            caught += 1
        else:
            assert _equal(load(path), _state())
    assert caught > 250


def test_a_file_that_was_cut_short_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    save(_state(), path)
    whole = path.read_bytes()
    for share in (0.0, 0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(len(whole) * share)])
        assert not is_valid(path), share


def test_a_sound_file_that_is_not_of_this_step_or_this_run_is_skipped_too(tmp_path: Path) -> None:
    ours, theirs = ({"run": {"config": {"seed": seed}, "hashes": {}, "parent": None}} for seed in (1, 2))
    for step in range(1, 6):
        save({"global_step": step, "seqtrain": ours}, tmp_path / step_name(step))
    wrong = {2: {"weights": 1}, 3: [], 4: {"global_step": 3, "seqtrain": ours}, 5: {"global_step": 5}}
    for step, content in wrong.items():
        save(content, tmp_path / step_name(step))
    save({"global_step": 6, "seqtrain": theirs}, tmp_path / step_name(6))
    said: list[str] = []
    assert newest_valid(tmp_path, said.append, run=ours["run"]) == tmp_path / step_name(1)
    reasons = sorted(line.partition(": ")[2] for line in said)
    assert reasons == [
        "another run wrote it: it does not say which run wrote it",
        "another run wrote it: seed was 2 when it was written and is 1 in config.yaml",
        *["its content is not a checkpoint of this step"] * 3,
    ]
    assert newest_valid(tmp_path, _silent) == tmp_path / step_name(6)


def test_there_is_no_newest_checkpoint_where_none_is_sound(tmp_path: Path) -> None:
    assert newest_valid(tmp_path, _silent) is newest_valid(tmp_path / "missing", _silent) is None
    (tmp_path / step_name(1)).write_bytes(b"no zip")
    assert newest_valid(tmp_path, lambda line: None) is None
    for step in (99_999_999, 100_000_000):  # steps are compared as numbers
        save({"global_step": step}, tmp_path / step_name(step))
    assert newest_valid(tmp_path, _silent) == tmp_path / step_name(100_000_000)


def test_a_disk_that_is_full_at_the_end_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ckpt"
    save(_state(0), path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(_state(1), path)
    with pytest.raises(OSError, match="No space left"):
        AtomicCheckpointIO().save_checkpoint(_state(1), path)
    monkeypatch.undo()
    assert load(path)["step"] == 0
    assert [each.name for each in tmp_path.iterdir()] == ["a.ckpt"]


def test_opening_a_checkpoint_executes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"weights": Payload()}, "evil.ckpt")
    assert not is_valid(Path("evil.ckpt"))
    with pytest.raises(UserError, match="refused"):
        load(Path("evil.ckpt"))
    assert not Path("made_by_a_checkpoint").exists()


def test_what_could_not_be_loaded_is_not_saved_and_its_place_is_named(tmp_path: Path) -> None:
    for foreign in (np.float64(1), np.zeros(2), pathlib.PurePosixPath("x"), Payload()):
        with pytest.raises(TypeError, match=r"checkpoint\['callbacks'\]\[1\]\['best'\] is a "):
            save({"callbacks": [0, {"best": foreign}]}, tmp_path / "a.ckpt")
        assert not list(tmp_path.iterdir())


def test_retention_keeps_the_newest_and_never_files_beyond_the_step_just_saved(tmp_path: Path) -> None:
    for step in (100, 150, 200, 300, 400):
        (tmp_path / step_name(step)).touch()
    (tmp_path / "best.ckpt").touch()
    keep_newest(tmp_path, 2, step=200)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["best.ckpt", step_name(150), step_name(200)]


def test_the_probe_refuses_a_full_disk_and_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    probe(tmp_path / "new")
    with pytest.raises(UserError, match=r"MiB are free, .* MiB are needed; make room or give another run_dir"):
        probe(tmp_path, space=1 << 60)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written to .*; give another run_dir"):
        probe(tmp_path / "file" / "checkpoints")
