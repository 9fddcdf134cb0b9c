"""Laws of words that do nothing or mean something else than they say: one line, before anything is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli import main
from seqtrain.config import check
from seqtrain.config.conf_files import ConfFiles
from seqtrain.errors import UserError
from seqtrain.experiment.resume import _value
from seqtrain.sweeps.grid import combinations
from seqtrain.sweeps.search import space
from seqtrain.sweeps.settings import Words

COMMANDS = {
    # command line: what the one line says; what a test of tests/refusals.yaml cannot type stands here
    ("train", "a\0b"): "a\\u0000b: contains a NUL byte; leave it out",
    ("train", "--config-dir", "a\udcff"): "a\\udcff: is not UTF-8, so no file of the run",
}


def test_a_command_line_that_makes_no_sense_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in COMMANDS.items():
        assert main.main(list(words)) == 2, words
        (line,) = capsys.readouterr().err.splitlines()
        assert told in line


def test_a_working_folder_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    os.rmdir(tmp_path / "gone")
    assert main.main(["matrix"]) == 2
    assert capsys.readouterr().err.startswith("error: the working folder cannot be used")


SYSTEM = {
    (30, "Read-only file system", "report.html"): "report.html: the file system is read-only",
    (28, "No space left on device"): "the disk is full; make room",
    (13, "Permission denied", "x\x1b[2J"): "x\\u001b[2J: Permission denied; fix that",
    (36, "File name too long", "x"): "x: the path is too long for this system",
}


def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, told in SYSTEM.items():

        def refuse(argv: list[str], error: tuple[Any, ...] = error) -> int:
            raise OSError(*error)

        monkeypatch.setattr("seqtrain.cli.matrix.main", refuse)
        assert main.main(["matrix"]) == 2
        assert capsys.readouterr().err.startswith(f"error: {told}")


@pytest.mark.parametrize("value", ["9" * 5000, pytest.param("[" * 3000 + "]" * 3000, marks=pytest.mark.long)], ids=len)
def test_a_number_or_list_beyond_reading_is_a_fault_of_its_word(value: str) -> None:
    word = f"trainer.max_steps={value}"
    with pytest.raises(UserError, match="not of the form key=value"):
        check.compose([word])
    with pytest.raises(UserError, match="not of the form key=value"):
        space({}, [word])
    assert combinations([word], ConfFiles()) == [((word,), "")]  # told where the trial is composed
    assert Words.sort([word]).trial == [word]
    with pytest.raises(UserError, match="cannot be parsed as YAML"):
        _value(value)
