"""Laws of the command line and of its twin in Python."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import seqtrain as package
from seqtrain.cli.main import COMMANDS, main
from seqtrain.experiment import start
from seqtrain.runs.directory import Run
from seqtrain.training.shipped import shipped, shipped_file
from tests.conftest import Answer, Seqtrain
from tests.support.quick import some_long
from tests.support.tiny import OPTIONS, corpus, difference

TRAIN = ("train", *OPTIONS, "trainer.max_steps=30", "trainer.validate_every=20", "data.eval_lanes=5")


@pytest.fixture(scope="module")
def folder(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `run`, a finished run, and the text that it read."""
    folder = corpus(tmp_path_factory.mktemp("cli"))
    answer = seqtrain(*TRAIN, "run_dir=run", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder


def only_json(answer: Answer) -> dict[str, Any]:
    """The one JSON object that a command printed, and nothing else."""
    assert answer.rc == 0, answer.err
    assert answer.out.count("\n") == 1
    found = json.loads(answer.out)
    assert isinstance(found, dict)
    return found


HELP = """
import sys
from seqtrain.cli.main import COMMANDS, main
for command in COMMANDS:
    try:
        main([command, "--help"])
    except SystemExit as leaving:
        assert not leaving.code, command
heavy = {"torch", "numpy", "pytorch_lightning", "hydra", "omegaconf", "datasets", "wandb", "optuna", "plotly"}
print(sorted(heavy & set(sys.modules)))
"""


def test_the_help_of_every_command_shows_an_example_and_imports_nothing_heavy() -> None:
    answer = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1] == "[]"
    for command in COMMANDS:
        assert f"example:\n  seqtrain {command}" in answer.stdout


def test_the_help_of_train_says_what_every_choice_of_every_group_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    groups = re.split(r"^  (?:model\.(?=mixers))?(\w+?)(?:(?<=mixer)s)?=$", capsys.readouterr().out, flags=re.MULTILINE)
    said = {
        group: re.findall(r"^    (\w+) +\w.* .*\w", text, re.M)
        for group, text in zip(groups[1::2], groups[2::2], strict=True)
    }
    folders = {path.name for path in shipped_file("", "train").parent.iterdir() if path.is_dir()}
    assert said == {group: shipped(group) for group in folders - {"hydra", "__pycache__"}}


def test_help_names_every_command(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answers = [seqtrain(*args, cwd=tmp_path) for args in ((), ("--help",), ("help",))]
    assert all(answer.rc == 0 and all(command in answer.out for command in COMMANDS) for answer in answers)
    assert seqtrain("--version", cwd=tmp_path).out.startswith("seqtrain ")


@pytest.mark.long
def test_a_dry_run_tells_seconds_by_steps_tried_unless_these_are_too_large(
    tmp_path: Path, seqtrain: Seqtrain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = corpus(tmp_path)
    told = only_json(seqtrain(*TRAIN, "--dry-run", "--json", cwd=folder))
    assert told["seconds"] == told["tokens"] / told["tokens_per_second"] > 0
    monkeypatch.chdir(folder)
    flops = told["flops_per_token"] * told["tokens_per_step"]
    tried: list[int] = []
    monkeypatch.setattr(start, "_speed", lambda config, data, steps: tried.append(steps) or 1.0)
    for most in (9 * flops, 2.5 * flops, flops / 2):
        monkeypatch.setattr(start, "MAX_FLOPS", most)
        assert main([*TRAIN, "--dry-run"]) == 0
    assert tried == [4, 2]
    assert "seconds are unknown: they are estimated only for small steps" in capsys.readouterr().err


@pytest.mark.long
def test_json_is_one_object_on_standard_output_and_nothing_else(folder: Path, seqtrain: Seqtrain) -> None:
    trained = only_json(seqtrain(*TRAIN, "run_dir=json", "--json", cwd=folder))
    assert trained == Run(folder / "json").summary.to_plain()
    resumed = only_json(seqtrain("resume", "json", "trainer.max_steps=32", "--json", cwd=folder))
    assert (resumed["status"], resumed["steps"]) == ("finished", 32)
    evaluated = only_json(seqtrain("evaluate", "run", "--json", cwd=folder))
    assert evaluated["split"] == "validation"
    written = only_json(seqtrain("predict", "run", "line 7", "--length", "5", "--json", cwd=folder))
    assert written.keys() == {"prompt", "text"}
    scored = only_json(seqtrain("predict", "run", "line 7", "--score", "--json", cwd=folder))
    assert scored.keys() >= {"loss", "bits_per_byte", "tokens"}


@pytest.mark.parametrize("asked", some_long([("--dry-run",), ("debug=dry",), ("dry_run=true",)], [("--dry-run",)]))
def test_a_dry_run_says_the_cost_and_leaves_nothing(asked: tuple[str, ...], folder: Path, seqtrain: Seqtrain) -> None:
    before = sorted(folder.rglob("*"))
    answer = seqtrain(*TRAIN, *asked, cwd=folder)
    assert answer.rc == 0, answer.err
    for what in ("parameters", "FLOPs a token", "tokens an epoch", "steps", "memory", "padding"):
        assert what in answer.out
    assert sorted(folder.rglob("*")) == before


def test_the_cost_is_the_one_that_the_run_has(folder: Path, seqtrain: Seqtrain) -> None:
    cost = only_json(seqtrain(*TRAIN, "--dry-run", "--json", cwd=folder))
    summary = Run(folder / "run").summary
    for name in ("parameters", "tokens", "steps", "flops", "padding"):
        assert cost[name] == getattr(summary, name), name


def test_hydra_shows_the_config_and_the_search_path_and_leaves_nothing(folder: Path, seqtrain: Seqtrain) -> None:
    before = sorted(folder.rglob("*"))
    shown = seqtrain("train", "model=gpt", "model.dim=48", "--cfg", "job", cwd=folder)
    assert shown.rc == 0, shown.err
    assert yaml.safe_load(shown.out)["model"]["dim"] == 48
    info = seqtrain("train", "--info", "searchpath", cwd=folder)
    assert info.rc == 0, info.err
    assert "pkg://seqtrain.conf" in info.out
    assert sorted(folder.rglob("*")) == before


def test_a_dry_grid_says_every_cost_and_trains_nothing(folder: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain(*TRAIN, "--dry-run", "--json", "-m", "model=rnn,gru", "hydra.sweep.dir=dry", cwd=folder)
    assert answer.rc == 0, answer.err
    rnn, gru = (json.loads(line)["parameters"]["core"] for line in answer.out.splitlines())
    assert gru == 3 * rnn
    assert not (folder / "dry").exists()


# -- evaluate ----------------------------------------------------------------------------------------------------


def test_training_never_reads_the_test_split_and_evaluate_does(folder: Path, seqtrain: Seqtrain) -> None:
    summary = Run(folder / "run").summary
    assert set(summary.hashes) == {"train", "validation", "tokenizer"}
    found = {
        split: only_json(seqtrain("evaluate", "run", "--split", split, "--json", cwd=folder))
        for split in ("validation", "test")
    }
    assert found["test"]["hash"] not in summary.hashes.values()
    assert found["validation"]["hash"] == summary.hashes["validation"]
    assert found["test"]["metrics"]["loss"] != found["validation"]["metrics"]["loss"]


def test_evaluate_and_predict_leave_the_run_as_it_was(folder: Path, seqtrain: Seqtrain) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}

    before = content()
    assert seqtrain("evaluate", "run", cwd=folder).rc == 0
    assert seqtrain("predict", "run", "--length", "3", cwd=folder).rc == 0
    assert content() == before


def test_the_bits_of_all_tokens_are_the_bits_of_the_text(folder: Path) -> None:
    text = "line 3 of 9 is bbb\nline"
    scored = package.load(folder / "run").score(text)
    bits = [token["bits"] for token in scored["tokens"]]
    assert "".join(token["text"] for token in scored["tokens"]).replace("\\n", "\n") == text
    assert sum(bits) == pytest.approx(scored["bits_per_byte"] * len(text.encode()), rel=1e-12)
    assert scored["loss"] == pytest.approx(sum(bits) * math.log(2) / len(bits), rel=1e-12)


# -- Python ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_train_from_python_gives_the_run_that_the_command_gives(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seqtrain_environment: dict[str, str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SEQTRAIN_CACHE", seqtrain_environment["SEQTRAIN_CACHE"])
    trained = package.train(*TRAIN[1:], "run_dir=python")
    command = package.load("run")
    assert trained.directory == Path("python")
    assert trained.metrics == command.metrics
    assert trained.summary["status"] == "finished"
    assert difference(dict(trained.model.state_dict()), dict(command.model.state_dict())) is None
    assert trained.tokenizer.hash == command.tokenizer.hash
    assert len(trained.history) == len(command.history)
    assert not trained.model.training
    assert not trained.task.training
    assert trained.config["trainer"]["max_steps"] == 30


def test_what_python_refuses_is_a_fault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(package.UserError, match="run_dir=run exists already"):
        package.train(*TRAIN[1:], "run_dir=run")
    with pytest.raises(package.UserError, match="dry_run=true"):
        package.train(*TRAIN[1:], "dry_run=true")
    with pytest.raises(package.UserError, match="run rum does not exist; did you mean run"):
        package.load("rum")
