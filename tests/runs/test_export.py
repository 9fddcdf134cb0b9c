"""Laws of exports: a folder that holds no code, opens anywhere, and gives the numbers of its run bit for bit."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import seqtrain
from seqtrain.cli import export as command
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.runs.export import save_weights
from tests.conftest import Seqtrain
from tests.support.quick import some_long
from tests.support.tiny import difference
from tests.support.untrained_runs import MASKED, NEXT_TOKEN, SENTIMENT, STEP, TEXTS, TRANSLATION, make_run

RUNS = {
    "next_token": NEXT_TOKEN,
    "masked_lm": MASKED,
    "sentiment": SENTIMENT,
    "translation": TRANSLATION,
    "tied": (*TRANSLATION, "task.tied=true"),
    "separate": (*TRANSLATION, "task.shared_vocab=false", "task.tied=false"),
}

HEAD = '{"seqtrain_export": 1, "step": 1'


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


def answers(path: Path, name: str) -> Any:
    trained = seqtrain.load(path)
    if name == "next_token":
        return (
            [trained.score(text) for text in TEXTS],
            trained.continue_texts(TEXTS[:2], length=9),
            trained.embed(TEXTS),
        )
    if name == "masked_lm":
        return trained.fill(["the [MASK] was tired"]), trained.embed(TEXTS)
    if name == "sentiment":
        return trained.classify(TEXTS), trained.embed(TEXTS)
    return trained.translate(TEXTS)


@pytest.mark.long
@pytest.mark.parametrize("name", some_long(RUNS, ("separate",)))
def test_an_export_gives_the_numbers_of_its_run_bit_for_bit(name: str, tmp_path: Path) -> None:
    path = exported(tmp_path, *RUNS[name])
    one, other = seqtrain.load(tmp_path / "run"), seqtrain.load(path)
    for part in ("model", "task"):
        weights = [getattr(trained, part).state_dict() for trained in (one, other)]
        assert difference(dict(weights[0]), dict(weights[1])) is None
    assert difference(answers(tmp_path / "run", name), answers(path, name)) is None
    assert other.opened.step == STEP
    assert other.config == one.config


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


def test_an_export_can_be_read_by_all_whom_the_umask_lets(folder: Path) -> None:
    new = folder / "new"
    new.touch()
    assert {path.stat().st_mode for path in (folder / "export").iterdir()} == {new.stat().st_mode}


def test_a_tensor_with_two_names_is_written_once(tmp_path: Path) -> None:
    path = exported(tmp_path, *TRANSLATION)
    aliases = json.loads((path / "config.json").read_text())["aliases"]
    assert aliases
    sizes = {id(weight): weight.numel() for weight in seqtrain.load(path).model.parameters()}
    assert (path / "model.safetensors").stat().st_size < 4 * sum(sizes.values()) + 30_000


def test_a_view_of_a_tensor_is_no_other_name_of_it(tmp_path: Path) -> None:
    whole = torch.arange(9.0).view(3, 3)
    weights = {"whole": whole, "again": whole, "rows": whole[:2], "turned": whole.t(), "flat": whole.view(9)}
    aliases = save_weights(tmp_path / "weights", weights)
    assert aliases == {"again": "whole"}
    from safetensors.torch import load_file

    found = load_file(tmp_path / "weights")
    assert found.keys() == weights.keys() - aliases.keys()
    assert all(torch.equal(found[name], weights[name]) for name in found)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("how", ["cut", "flipped", "missing"])
def test_a_damaged_export_is_refused(name: str, how: str, folder: Path) -> None:
    file = folder / "export" / name
    whole = bytearray(file.read_bytes())
    whole[-10] ^= 1
    file.unlink()
    if how != "missing":
        file.write_bytes(whole if how == "flipped" else whole[:-20])
    with pytest.raises(UserError):
        seqtrain.load(file.parent)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"seqtrain_export": 2}', '{"seqtrain_export": 1}'),
        f'{HEAD}, "hashes": {{"../run/config.yaml": 1}}, "aliases": {{}}, "config": {{}}, "summary": {{}}}}',
        f'{HEAD}, "hashes": {{}}, "aliases": {{}}, "config": {{"model": 1}}, "summary": {{}}}}',
    ],
)
def test_a_folder_with_another_config_is_refused_in_one_line(content: str, folder: Path) -> None:
    path = folder / "export"
    (path / "config.json").write_text(content)
    with pytest.raises(UserError):
        seqtrain.load(path)


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
def test_commands_use_an_export_or_say_in_one_line_why_not(folder: Path, seqtrain: Seqtrain) -> None:
    path = folder / "export"
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    for args in (("predict", "--score", TEXTS[0]), ("search", "--corpus", "texts.txt", TEXTS[1])):
        found = [seqtrain(args[0], name, *args[1:], cwd=folder) for name in ("run", "export")]
        assert found[0].rc == found[1].rc == 0, found[1].err
        assert found[0].out == found[1].out
    assert seqtrain("embed", "export", "--input", "texts.txt", "--output", "v.parquet", cwd=folder).rc == 0
    for args in (("resume", "export"), ("evaluate", "export"), ("export", "export", "--output", "again")):
        answer = seqtrain(*args, cwd=folder)
        assert answer.rc == 2
        assert answer.err == (
            "error: export is an export: weights to use (predict, embed, search, init_from); give the run itself\n"
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
