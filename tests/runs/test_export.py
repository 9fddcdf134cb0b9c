"""Laws of exports: a folder that holds no code, opens anywhere, and gives the numbers of its run bit for bit."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import seqtrain
from seqtrain.cli import export as command
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.runs.export import save_weights
from tests.conftest import Seqtrain
from tests.support.untrained_runs import NEXT_TOKEN, SENTIMENT, TEXTS, make_run

HEAD = '{"seqtrain_export": 1, "step": 1'
CONFIGS = (
    *("", "[]", "{}", '{"seqtrain_export": 2}', '{"seqtrain_export": 1}'),
    f'{HEAD}, "hashes": {{"../run/config.yaml": 1}}, "aliases": {{}}, "config": {{}}, "summary": {{}}}}',
    f'{HEAD}, "hashes": {{}}, "aliases": {{}}, "config": {{"model": 1}}, "summary": {{}}}}',
)


def exported(folder: Path, *overrides: str) -> Path:
    """An export of a new run, beside it."""
    make_run(folder / "run", *overrides)
    assert command.main([str(folder / "run"), "--output", str(folder / "export")]) == 0
    return folder / "export"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `run` and `export`."""
    return exported(tmp_path_factory.mktemp("made"), *NEXT_TOKEN).parent


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of both."""
    return shutil.copytree(made, tmp_path / "copy")


def test_an_export_is_safetensors_and_json_alone_and_says_what_it_is(tmp_path: Path) -> None:
    path = exported(tmp_path, *SENTIMENT)
    assert sorted(each.name for each in path.iterdir()) == [
        *("config.json", "labels.json", "model.safetensors", "tokenizer.json")
    ]
    about = json.loads((path / "config.json").read_text())
    assert about["vocabulary"]["labels"] == 3
    assert about["config"]["task"]["_target_"] == "seqtrain.tasks.sentiment.Sentiment"
    assert about["hashes"].keys() == {"labels.json", "model.safetensors", "tokenizer.json"}
    from safetensors.torch import load_file

    weights = load_file(path / "model.safetensors")
    assert torch.equal(
        weights["model.embed.weight"], seqtrain.load(tmp_path / "run").model.embed.state_dict()["weight"]
    )


def test_a_view_of_a_tensor_is_no_other_name_of_it(tmp_path: Path) -> None:
    whole = torch.arange(9.0).view(3, 3)
    weights = {"whole": whole, "again": whole, "rows": whole[:2], "turned": whole.t(), "flat": whole.view(9)}
    aliases = save_weights(tmp_path / "weights", weights)
    assert aliases == {"again": "whole"}
    from safetensors.torch import load_file

    found = load_file(tmp_path / "weights")
    assert found.keys() == weights.keys() - aliases.keys()
    assert all(torch.equal(found[name], weights[name]) for name in found)


def test_a_damaged_export_or_another_config_is_refused(folder: Path) -> None:
    export = folder / "export"
    for name in ("model.safetensors", "tokenizer.json"):
        whole = (export / name).read_bytes()
        for damaged in (whole[:-20], whole[:-10] + bytes([whole[-10] ^ 1]) + whole[-9:], None):
            (export / name).unlink()
            if damaged is not None:
                (export / name).write_bytes(damaged)
            with pytest.raises(UserError):
                seqtrain.load(export)
            (export / name).write_bytes(whole)
    for content in CONFIGS:
        (export / "config.json").write_text(content)
        with pytest.raises(UserError):
            seqtrain.load(export)


def test_an_export_never_overwrites_and_is_written_whole_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "export"
    before = {each: each.read_bytes() for each in path.iterdir()}
    arguments = [str(folder / "run"), "--output"]
    with pytest.raises(UserError, match="exists already; name a new folder"):
        command.main([*arguments, str(path)])
    assert {each: each.read_bytes() for each in path.iterdir()} == before
    below = folder / "new" / "export"
    assert command.main([*arguments, str(below)]) == 0
    assert {each.name: each.read_bytes() for each in below.iterdir()} == {each.name: before[each] for each in before}
    shutil.rmtree(folder / "new")
    shutil.rmtree(path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device; make room"):
        command.main([*arguments, str(path)])
    assert [each.name for each in folder.iterdir()] == ["run"]


@pytest.mark.long
def test_what_an_export_cannot_do_is_said_in_one_line(folder: Path, seqtrain: Seqtrain) -> None:
    path = folder / "export"
    for args in (("resume", "export"), ("evaluate", "export"), ("export", "export", "--output", "again")):
        answer = seqtrain(*args, cwd=folder)
        assert answer.rc == 2
        assert answer.err == (
            "error: export is an export, which is only for predict, embed, search and init_from; give the run itself\n"
        )
    assert Run(path).exported


@pytest.mark.long
def test_a_run_begins_with_the_weights_of_an_export(folder: Path, seqtrain: Seqtrain) -> None:
    (folder / "text.txt").write_text("\n".join(TEXTS * 30))
    options = (*NEXT_TOKEN[:2], "model.num_layers=2", "model.num_heads=2", "model.dim=16", "logger=none")
    options += ("data=text", "data.path=text.txt", "data.split_by=position", "tbptt.k2=16")
    small = ("trainer.max_steps=1", "data.batch_size=2", "data.eval_lanes=2", "callbacks=none", "optimizer.lr=1e-12")
    for name in ("run", "export"):
        answer = seqtrain("train", *options, *small, f"init_from={name}", f"run_dir=from_{name}", cwd=folder)
        assert answer.rc == 0, answer.err
    losses = [Run(folder / f"from_{name}").summary.metrics["validation"]["loss"] for name in ("run", "export")]
    assert losses[0] == losses[1]


# -- weights of a stranger, with hashes that fit ----------------------------------------------------------------------


NAME = "model.embed.weight"


def sign(folder: Path) -> None:
    """Writes the hash of the weights as they are now into config.json."""
    about = json.loads((folder / "config.json").read_text())
    about["hashes"]["model.safetensors"] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(about))


def test_weights_of_another_shape_or_type_or_that_are_no_numbers_are_refused(folder: Path) -> None:
    path = folder / "export" / "model.safetensors"
    weights = load_file(path)
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "embed.weight is float32 of": lambda weight: weight[:-1].contiguous(),
        "embed.weight is float64 of": lambda weight: weight.double(),
        "embed.weight'] contains nan or inf": lambda weight: weight.fill_(float("nan")),
    }
    for says, change in changes.items():
        save_file(weights | {NAME: change(weights[NAME].clone())}, path)
        sign(folder / "export")
        with pytest.raises(UserError, match="do not match the model") as fault:
            seqtrain.load(folder / "export")
        assert says in fault.value.lines[0]


def test_a_header_without_end_is_not_parsed(folder: Path) -> None:
    path = folder / "export" / "model.safetensors"
    header = b"{" + b" " * (1 << 24) + b"}"
    path.write_bytes(len(header).to_bytes(8, "little") + header + torch.zeros(9).numpy().tobytes())
    sign(folder / "export")
    with pytest.raises(UserError, match="its header has 16,777,218 bytes, more than any model needs"):
        seqtrain.load(folder / "export")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read whole to hash it is a failure: it may have a terabyte."""

    def read(path: Path) -> str:
        raise AssertionError(f"{path} was read whole")

    monkeypatch.setattr("seqtrain.runs.export._hash", read)


@pytest.mark.usefixtures("unread")
def test_weights_of_more_bytes_than_their_header_tells_are_not_read(folder: Path) -> None:
    os.truncate(folder / "export" / "model.safetensors", 1 << 40)
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        seqtrain.load(folder / "export")


@pytest.mark.usefixtures("unread")
def test_weights_that_the_model_does_not_have_are_not_read(folder: Path) -> None:
    path = folder / "export" / "model.safetensors"
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
        seqtrain.load(folder / "export")


def test_names_without_end_are_not_looked_through(folder: Path) -> None:
    names = {f"x{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range((1 << 16) + 1)}
    text = json.dumps(names).encode()
    (folder / "export" / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    sign(folder / "export")
    with pytest.raises(UserError, match="65,537 weights, more than any model has"):
        seqtrain.load(folder / "export")


def test_a_file_that_no_export_has_is_not_hashed(folder: Path) -> None:
    (folder / "export" / "more.bin").touch()
    os.truncate(folder / "export" / "more.bin", 1 << 40)
    about = json.loads((folder / "export" / "config.json").read_text())
    about["hashes"]["more.bin"] = "0" * 64
    (folder / "export" / "config.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"more\.bin: missing, or changed since the export"):
        seqtrain.load(folder / "export")
