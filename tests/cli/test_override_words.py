"""Words of a command line that no reader of numbers or lists can take are refused in a line, wherever they are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.errors import HydraException

from seqtrain.cli import main
from seqtrain.config import check
from seqtrain.config.conf_files import ConfFiles, parsed
from seqtrain.errors import UserError
from seqtrain.experiment.resume import _value
from seqtrain.sweeps.grid import combinations
from seqtrain.sweeps.search import space
from seqtrain.sweeps.settings import Words
from tests.support import tiny

DIGITS = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000


@pytest.mark.parametrize(
    "value", [pytest.param(DIGITS, id="digits"), pytest.param(DEEP, id="levels", marks=pytest.mark.long)]
)
def test_a_number_or_list_beyond_reading_is_a_fault_of_its_word(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.corpus(tmp_path))
    word = f"trainer.max_steps={value}"
    with pytest.raises(HydraException):
        parsed(word)
    with pytest.raises(UserError, match="not of the form key=value"):
        check.compose([*tiny.OPTIONS, word])
    with pytest.raises(UserError, match="not of the form key=value"):
        space({}, [word])
    assert combinations([word], ConfFiles()) == [((word,), "")]  # told where the trial is composed
    assert Words.sort([word]).trial == [word]
    with pytest.raises(UserError, match="no value that can be read"):
        _value(value)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("run_dir=x", "run_dir=x: both runs get a folder of their own; --keep DIR leaves them in DIR"),
        ("dry_run=true", "dry_run=true: what trains nothing cannot be resumed"),
    ],
)
def test_verify_resume_refuses_what_it_would_not_act_upon(
    word: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["verify-resume", word]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {words}")
