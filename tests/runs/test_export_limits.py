"""Laws of the weights in an export that a stranger may have made, with hashes that fit."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import seqtrain
from seqtrain.cli import export as command
from seqtrain.errors import UserError
from tests.support.untrained_runs import NEXT_TOKEN, make_run

NAME = "model.embed.weight"


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    make_run(tmp_path / "run", *NEXT_TOKEN)
    command.main([str(tmp_path / "run"), "--output", str(tmp_path / "export")])
    return tmp_path / "export"


def sign(folder: Path) -> None:
    """Writes the hash of the weights as they are now into config.json."""
    about = json.loads((folder / "config.json").read_text())
    about["hashes"]["model.safetensors"] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(about))


def test_weights_of_another_shape_or_type_or_that_are_no_numbers_are_refused(exported: Path) -> None:
    path = exported / "model.safetensors"
    weights = load_file(path)
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "embed.weight is float32 of": lambda weight: weight[:-1].contiguous(),
        "embed.weight is float64 of": lambda weight: weight.double(),
        "embed.weight'] holds what is no number": lambda weight: weight.fill_(float("nan")),
    }
    for says, change in changes.items():
        save_file(weights | {NAME: change(weights[NAME].clone())}, path)
        sign(exported)
        with pytest.raises(UserError, match="are not those of the model") as fault:
            seqtrain.load(exported)
        assert says in fault.value.lines[0]


def test_a_header_without_end_is_not_parsed(exported: Path) -> None:
    path = exported / "model.safetensors"
    header = b"{" + b" " * (1 << 24) + b"}"
    path.write_bytes(len(header).to_bytes(8, "little") + header + torch.zeros(9).numpy().tobytes())
    sign(exported)
    with pytest.raises(UserError, match="its header has 16,777,218 bytes, more than any model's"):
        seqtrain.load(exported)


@pytest.fixture
def unread(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read whole to hash it is a failure: it may have a terabyte."""

    def read(path: Path) -> str:
        raise AssertionError(f"{path} was read whole")

    monkeypatch.setattr("seqtrain.runs.export._hash", read)


@pytest.mark.usefixtures("unread")
def test_weights_of_more_bytes_than_their_header_tells_are_not_read(exported: Path) -> None:
    os.truncate(exported / "model.safetensors", 1 << 40)
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        seqtrain.load(exported)


@pytest.mark.usefixtures("unread")
def test_weights_that_the_model_does_not_have_are_not_read(exported: Path) -> None:
    path = exported / "model.safetensors"
    save_file(load_file(path) | {"huge": torch.zeros(9)}, path)
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    begin = header["huge"]["data_offsets"][0]
    header["huge"] = {"dtype": "F32", "shape": [1 << 30], "data_offsets": [begin, begin + (1 << 32)]}
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] > begin:
            entry["data_offsets"] = [offset + (1 << 32) - 36 for offset in entry["data_offsets"]]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + len(content) - end + (1 << 32) - 36)
    with pytest.raises(UserError, match="state_dict: huge is unknown"):
        seqtrain.load(exported)


def test_names_without_end_are_not_looked_through(exported: Path) -> None:
    names = {f"x{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range((1 << 16) + 1)}
    text = json.dumps(names).encode()
    (exported / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    sign(exported)
    with pytest.raises(UserError, match="65,537 weights, more than any model has"):
        seqtrain.load(exported)


def test_a_file_that_no_export_has_is_not_hashed(exported: Path) -> None:
    (exported / "more.bin").touch()
    os.truncate(exported / "more.bin", 1 << 40)
    about = json.loads((exported / "config.json").read_text())
    about["hashes"]["more.bin"] = "0" * 64
    (exported / "config.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"more\.bin: missing, or not what was exported"):
        seqtrain.load(exported)
