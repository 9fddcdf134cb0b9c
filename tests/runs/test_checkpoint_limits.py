"""Laws of what a checkpoint file may be made of: a few bytes of a stranger's cost neither time nor memory nor code."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrain.errors import UserError
from seqtrain.runs import checkpoint_limits
from seqtrain.runs.checkpoint import leaves, load, newest_valid, save, step_name
from tests.support.checkpoints import is_valid


def written(path: Path, pickled: bytes, *more: tuple[str, bytes]) -> Path:
    """A checkpoint file of this pickle, as torch lays one out, with further entries."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (("x/data.pkl", pickled), ("x/version", b"3\n"), ("x/byteorder", b"little"), *more):
            archive.writestr(name, content)
    return path


def doubled(times: int, *, take: bytes, key: bool) -> bytes:
    """A pickle of a container of twice the same container, and so on; as a key of a map it has to be hashed."""
    out = b"\x80\x02" + (b"}" if key else b"") + b"K\x01q\x00"
    for number in range(times):
        out += b"h" + bytes([number]) + take + b"q" + bytes([number + 1])
    return out + (b"K\x01s." if key else b".")


TOP_DOWN = b"\x80\x02]q\x00" + b"".join(
    b"]q" + bytes([number + 1]) + b"0h" + bytes([number]) + b"(" + (b"h" + bytes([number + 1])) * 2 + b"e0"
    for number in range(200)
)
"""Lists that are filled after they were taken into others: each holds the next one twice."""

HANGS = {
    "tuples that are a key": doubled(100, take=b"\x86", key=True),
    "tuples": doubled(100, take=b"\x86", key=False),
    "lists": pickle.dumps([0], 2)[:-1] + b"q\x7f0" + doubled(60, take=b"\x86", key=False)[2:],
    "lists filled later": TOP_DOWN + b"h\x00.",
    "lists in lists": b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".",
    "a list in itself": b"\x80\x02]q\x00(h\x00h\x00h\x00e.",
}


@pytest.mark.parametrize("name", HANGS)
def test_a_pickle_that_refers_to_itself_ends_in_one_line(tmp_path: Path, name: str) -> None:
    """Followed reference by reference it would take years."""
    path = written(tmp_path / step_name(1), HANGS[name])
    assert newest_valid(tmp_path, lambda line: None) is None
    if name != "a list in itself":
        with pytest.raises(UserError, match=r"refused: ") as fault:
            load(path)
        assert len(fault.value.lines) == 1


def test_a_pickle_of_more_instructions_than_any_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_limits, "MAX_OPCODES", 100)
    with pytest.raises(UserError, match="holds more objects than any checkpoint"):
        load(written(tmp_path / "x.ckpt", b"\x80\x02" + b"]0" * 50 + b"N."))


def test_only_what_checkpoints_hold_is_named(tmp_path: Path) -> None:
    for name in ("os system", "builtins bytearray", "_codecs encode", "torch._utils _rebuild_sparse_tensor"):
        path = written(tmp_path / "x.ckpt", b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\nK\x09\x85R.")
        with pytest.raises(UserError, match="holds more than tensors and plain containers"):
            load(path)


SOUND = pickle.dumps({"global_step": 1}, 2)
ENTRIES: dict[str, tuple[str, bytes]] = {
    "code of TorchScript": ("x/constants.pkl", b"N."),
    "a path upwards": ("x/../y", b""),
    "an absolute path": ("/x/data/0", b""),
    "another root": ("y/data.pkl", SOUND),
    "a folder": ("x/data/", b""),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_file_of_other_entries_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "x.ckpt", SOUND, ENTRIES[name])
    with pytest.raises(UserError, match="refused: it has entries that no checkpoint has, or one twice"):
        load(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_of_one_entry_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.ckpt", SOUND, ("x/data.pkl", pickle.dumps({"global_step": 2}, 2)))
    with pytest.raises(UserError, match="or one twice"):
        load(path)


def test_a_list_of_entries_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.ckpt"
    save({"global_step": 1}, path)
    monkeypatch.setattr(checkpoint_limits, "MAX_DIRECTORY_BYTES", 100)
    with pytest.raises(UserError, match="lists more entries than any checkpoint has"):
        load(path)


def test_a_pickle_larger_than_any_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_limits, "MAX_PICKLE_BYTES", 10)
    path = written(tmp_path / "x.ckpt", SOUND)
    with pytest.raises(UserError, match=rf"its list of contents has {len(SOUND)} bytes, more than any checkpoint's"):
        load(path)


@pytest.mark.long
def test_what_a_run_saves_is_far_from_every_limit(tmp_path: Path) -> None:
    """A Transformer of 200 layers, and its moments."""
    weights = {f"blocks.{layer}.{part}.weight": torch.zeros(2) for layer in range(200) for part in range(12)}
    moments = {number: {"step": torch.zeros(()), "exp_avg": w, "exp_avg_sq": w} for number, w in enumerate(weights)}
    path = tmp_path / "x.ckpt"
    save({"state_dict": weights, "optimizer": moments, "tied": [weights] * 3}, path)
    assert is_valid(path)
    assert len(load(path)["state_dict"]) == 2400


def test_each_container_is_looked_into_once() -> None:
    found: list[Any] = [1]
    for _ in range(50):
        found = [found, found]
    assert list(leaves(found, "x")) == [(1, "x" + "[1]" * 50 + "[0]")]
    for _ in range(50):
        found = [found]
    with pytest.raises(TypeError, match="nested more than 64 deep"):
        list(leaves(found, "x"))
