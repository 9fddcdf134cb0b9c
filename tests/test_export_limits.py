"""Laws of the weights in an export that a stranger may have made, with hashes that fit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import seqtrain
from seqtrain.commands import export as command
from seqtrain.faults import Fault
from tests.opened import NEXT_TOKEN, make_run

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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda weight: weight[:-1].contiguous(), "embed.weight is float32 of"),
        (lambda weight: weight.double(), "embed.weight is float64 of"),
        (lambda weight: weight.fill_(float("nan")), "embed.weight'] holds what is no number"),
    ],
)
def test_weights_of_another_shape_or_type_or_that_are_no_numbers_are_refused(
    exported: Path, change: Callable[[Tensor], Tensor], says: str
) -> None:
    path = exported / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {NAME: change(weights[NAME].clone())}, path)
    sign(exported)
    with pytest.raises(Fault, match="are not those of the model") as fault:
        seqtrain.load(exported)
    assert says in fault.value.lines[0]


def test_a_header_without_end_is_not_parsed(exported: Path) -> None:
    path = exported / "model.safetensors"
    header = b"{" + b" " * (1 << 24) + b"}"
    path.write_bytes(len(header).to_bytes(8, "little") + header + torch.zeros(9).numpy().tobytes())
    sign(exported)
    with pytest.raises(Fault, match="its header has 16,777,218 bytes, more than any export's"):
        seqtrain.load(exported)
