"""`seqtrain compare`: what it refuses, what it gives machines, and that it holds for real runs and many."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from seqtrain.cli.main import main
from seqtrain.compare.entries import read
from seqtrain.config.groups import option_name
from seqtrain.errors import UserError
from tests.conftest import REPOSITORY, Seqtrain
from tests.support import fake_runs, tiny

VARIANTS = {"lstm": (1.5, 1.51, 1.52), "gpt": (1.63, 1.62, 1.64)}


FAULTS: dict[str, tuple[tuple[str, ...], str]] = {
    "no such folder": (("swep",), "swep: no such run, sweep or folder of runs; did you mean sweep?"),
    "a folder without runs": (("empty",), "empty: contains no run"),
    "no such key": (("sweep", "--where", "modle=gpt"), "--where modle=gpt: no run has modle; did you mean model?"),
    "no condition": (("sweep", "--where", "model"), "--where model: expected KEY=VALUE"),
    "nothing left": (("sweep", "--where", "model=rnn"), "--where model=rnn: none of 6 runs matches"),
    "no such column": (("sweep", "--sort", "-lose"), "--sort -lose: no run has lose; did you mean loss?"),
    "a name of two settings": (("sweep", "--sort", "dropout"), "--sort dropout: no run has dropout; say which: "),
    "no such metric": (("sweep", "--metric", "los"), "--metric los: no run has it; did you mean loss?"),
    "no such axis": (("sweep", "--x", "epochs"), "seqtrain compare: argument --x"),
    "no place for the file": (("sweep", "--csv", "nowhere/out.csv"), "nowhere/out.csv cannot be written"),
    "a page on standard output": (("sweep", "--html", "-"), "--html -: a page is opened from a file; name one"),
    "two answers in one place": (("sweep", "--csv", "-", "--json"), "--csv -: --json writes to standard output, too"),
    "pieces in a table": (("sweep", "--paired", "--csv", "-"), "--paired: answers in one sentence, which --csv does"),
    "pieces of many": (("sweep", "--paired"), "--paired: needs two runs, not 6"),
    "pieces of unlike ones": (
        ("sweep/000", "other", "--paired"),
        "--paired: the two runs are not comparable: other val",
    ),
    "a damaged run": (("damaged",), "damaged/summary.json cannot be read"),
    "a damaged run among others": (("sweep", "damaged"), "damaged/summary.json cannot be read"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep, a run on another text, a damaged run, and an empty folder."""
    folder = tmp_path_factory.mktemp("compared")
    fake_runs.sweep(folder / "sweep", VARIANTS, config={"model.dropout": 0.0, "task.dropout": 0.0})
    fake_runs.run(folder / "other", hashes=fake_runs.HASHES | {"validation": "d" * 32})
    (fake_runs.run(folder / "damaged") / "summary.json").write_text('{"status": ')
    (folder / "empty").mkdir()
    return folder


def test_a_fault_is_one_line_that_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for name, (words, says) in FAULTS.items():
        assert main(["compare", *words]) == 2, name
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {says}"), name


def test_a_damaged_run_that_is_named_is_a_fault_whatever_else_is_damaged(tmp_path: Path) -> None:
    damaged, sound = fake_runs.run(tmp_path / "5"), fake_runs.run(tmp_path / "sound" / "run")
    for path in (damaged, fake_runs.run(tmp_path / "folder" / "0")):
        (path / "config.yaml").write_text("- a list")
    left_out: list[str] = []
    for paths in ([damaged, tmp_path / "folder"], [tmp_path / "folder", damaged]):
        with pytest.raises(UserError) as caught:
            read([sound, *paths], left_out)
        assert len(caught.value.lines) == 2
    assert [entry.path for entry in read([sound, tmp_path / "folder"], left_out)] == [sound]
    assert len(left_out) == 1


# -- for machines ------------------------------------------------------------------------------------------------


def test_csv_on_standard_output_stands_there_alone(folder: Path, tmp_path: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain("compare", ".", "--csv", "-", cwd=folder)
    assert answer.rc == 0, answer.err
    assert len(list(csv.DictReader(answer.out.splitlines()))) == 7
    assert "\r" not in answer.out
    assert [line.partition(":")[0] for line in answer.err.splitlines()] == ["left out"]
    assert not (folder / "-").exists()
    file = tmp_path / "out.csv"
    assert seqtrain("compare", ".", "--csv", str(file), cwd=folder).rc == 0
    assert file.read_text().splitlines() == answer.out.splitlines()


# -- real runs ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tiny runs that differ in model and seed."""
    home = tiny.corpus(tmp_path_factory.mktemp("trained"), lines=100)
    for model, seed in (("lstm", 1), ("gru", 2)):
        options = (f"model={model}", f"seed={seed}", "trainer.max_steps=4", "trainer.validate_every=2")
        answer = seqtrain("train", *tiny.OPTIONS, *options, f"run_dir=runs/{model}", cwd=home)
        assert answer.rc == 0, answer.err
    return home


def test_two_real_runs_are_compared_as_they_are_and_piece_by_piece(seqtrain: Seqtrain, trained: Path) -> None:
    summaries = {name: json.loads((trained / "runs" / name / "summary.json").read_text()) for name in ("lstm", "gru")}
    answer = seqtrain("compare", "runs", "--x", "flops", "--json", cwd=trained)
    assert answer.rc == 0, answer.err
    found = json.loads(answer.out)
    (group,) = found["groups"]
    assert group["metric"] == "bits_per_byte"
    assert "one seed each" in group["verdict"][0]
    for row in found["runs"]:
        summary = summaries[row["model"]]
        assert row["final"] == summary["metrics"]["validation"]["bits_per_byte"]
        assert row["flops"] == pytest.approx(summary["flops_per_token"] * summary["tokens"])
    answer = seqtrain("compare", "runs/lstm", "runs/gru", "--paired", "--json", cwd=trained)
    assert answer.rc == 0, answer.err
    found = json.loads(answer.out)
    lstm, gru = (summaries[name]["best"]["validation"]["bits_per_byte"] for name in ("lstm", "gru"))
    assert found["difference"] == pytest.approx(gru - lstm, abs=1e-6)
    assert found["low"] <= found["difference"] <= found["high"]
    assert found["batches"] > 9
    assert found["verdict"].startswith("these two runs: ")
    assert found["verdict"].endswith("this says nothing about other seeds")


# -- the code ----------------------------------------------------------------------------------------------------


def test_an_option_is_called_by_the_name_that_chooses_it() -> None:
    for group in ("model", "task", "tokenizer", "optimizer"):
        shipped = {path.stem: yaml.safe_load(path.read_text()) for path in (REPOSITORY / "conf" / group).glob("*.yaml")}
        targets = {name: content["_target_"] for name, content in shipped.items() if "_target_" in content}
        assert len(targets) > 2
        for name, target in targets.items():
            # Files that choose other options of one class share its name.
            alike = {other for other in targets if targets[other] == target}
            assert option_name(target) in alike, name


def compared(folder: Path, count: int) -> tuple[float, str]:
    """CPU seconds of comparing so many finished runs, and what is printed."""
    for number in range(count):
        fake_runs.run(
            folder / f"{number:04d}",
            1.5 + number % 97 / 1000,
            model=list(fake_runs.MODELS)[number % 4],
            seed=number // 4 % 5,
            config={"model.dim": 16 * (1 + number // 20)},
            values=[2.0] * 50,
        )
    command = [sys.executable, "-m", "seqtrain", "compare", str(folder)]
    before = os.times()
    answer = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"})
    after = os.times()
    assert answer.returncode == 0, answer.stderr
    return after.children_user - before.children_user, answer.stdout


@pytest.mark.long
def test_a_thousand_runs_are_compared_and_four_times_as_many_cost_less_than_eight_times(
    tmp_path: Path,
) -> None:
    few, _ = compared(tmp_path / "few", 250)
    many, table = compared(tmp_path / "many", 1000)
    assert len(re.findall(r"^\d{4} ", table, re.MULTILINE)) == 1000
    assert many < 8 * few
