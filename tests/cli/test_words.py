"""Laws of words that do nothing or mean something else than they say: one line, before anything is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqtrain.cli import main
from seqtrain.config import check
from seqtrain.errors import UserError

WORDS = {
    "hydra.run.dir=x": "changes nothing here; run_dir= names the folder of a run",
    "hydra.job.chdir=true": "changes nothing here",
    "hydra.sweep.dir=x": "counts in a sweep only, so add -m",
    "run_dir=~/x": 'no shell expands this ~; write run_dir="$HOME/x"',
    "run_dir='~'": 'no shell expands this ~; write run_dir="$HOME"',
    "init_from=~/run": "no shell expands this ~",
    f"model.dim={'9' * 5000}": "not of the form key=value: Exceeds the limit",
}


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word[:20])
def test_a_word_that_cannot_do_what_it_says_is_one_line(word: str) -> None:
    with pytest.raises(UserError) as refused:
        check.compose([word])
    assert len(refused.value.lines) == 1
    assert WORDS[word] in refused.value.lines[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "--cfg", "foo"), "invalid choice: 'foo'"),
        (("train", "--cfg"), "expected one argument"),
        (("train", "a\0b"), "a\\u0000b: holds a NUL byte; leave it out"),
        (("train", "--config-dir", "a\udcff"), "a\\udcff: is not UTF-8, and no file of the run"),
        *(
            ((command, ""), f"seqtrain {command}: a word is empty")
            for command in ("serve", "compare", "resume", "train")
        ),
        (("compare", ".", "--html", ""), "seqtrain compare: a word is empty, as where a shell variable is not set"),
        (("compare", ".", "--html="), "seqtrain compare: --html= is given nothing"),
        (("predict", ".", "--output=", "x"), "seqtrain predict: --output= is given nothing"),
        (("predict", ".", "--length", "2147483648"), "2147483648 is not a whole number from 1 to 1,000,000"),
        (("train", "train"), "train: not of the form key=value"),
        (("compare", ".", "--html=~/x.html"), 'no shell expands this ~; write --html="$HOME/x.html"'),
    ],
    ids=lambda word: str(word)[:30],
)
def test_a_command_line_that_makes_no_sense_is_one_line(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(list(words)) == 2
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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(30, "Read-only file system", "report.html"), "report.html: the file system can only be read"),
        (OSError(28, "No space left on device"), "the disk is full; make room"),
        (OSError(13, "Permission denied", "x\x1b[2J"), "x\\u001b[2J: Permission denied; mend that"),
        (OSError(36, "File name too long", "x"), "x: the path is too long for this system"),
    ],
    ids=str,
)
def test_what_the_system_refuses_is_one_line(error: OSError, told: str, monkeypatch, capsys) -> None:
    def refuse(argv: list[str]) -> int:
        raise error

    module = type(main)("seqtrain.cli.matrix")
    module.main = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "seqtrain.cli.matrix", module)
    assert main.main(["matrix"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {told}")
