"""Laws of examples/lecture/: each script runs as a person types it, and claims no more than its numbers show."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from matplotlib import image

from seqtrain.api import Trained
from shared import Bench, Result
from tests.conftest import REPOSITORY

SCRIPTS = {
    path.stem: path for path in sorted((REPOSITORY / "examples" / "lecture").glob("*.py")) if path.stem != "shared"
}
LENGTHS = re.compile(r"(trainer\.(?:max_steps|validate_every))=.*")


class Short(Bench):
    """Trains as a demonstration asks, for three steps."""

    def train(self, name: str, *overrides: str) -> Trained:
        return super().train(name, *(LENGTHS.sub(r"\1=3", word) for word in overrides))


def typed(monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> None:
    """Run a script as `python examples/lecture/NAME.py WORDS`, in this process."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPTS[name]), *words])
    runpy.run_path(str(SCRIPTS[name]), run_name="__main__")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_claims_and_takes(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        typed(monkeypatch, name, "--help")
    assert left.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    assert importlib.import_module(name).CLAIM in words
    for option in ("--seeds", "--out", "--json"):
        assert option in words


@pytest.mark.parametrize("word", ["--seeds=0", "--seeds=some", "trainer=gpu"])
def test_a_word_that_cannot_be_is_refused_and_nothing_is_written(
    word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        typed(monkeypatch, "perpendicular", word)
    assert left.value.code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_record_is_the_same_on_stdout_and_in_its_folder_beside_a_real_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "perpendicular", "--json", "--seeds", "2", "--out", str(tmp_path))
    record = json.loads(capsys.readouterr().out)
    folder = tmp_path / "perpendicular"
    assert record == json.loads((folder / "perpendicular.json").read_text())
    assert (record["name"], record["seeds"], record["holds"]) == ("perpendicular", 2, True)
    pixels = image.imread(folder / "perpendicular.png")
    assert pixels.std() > 0.05  # something is drawn on it
    typed(monkeypatch, "perpendicular", "--seeds", "2", "--out", str(tmp_path))
    claim, _, header, *rows, blank, verdict = capsys.readouterr().out.splitlines()
    assert (claim, blank, verdict) == (f"claim: {record['claim']}", "", record["verdict"])
    assert header.split() == list(record["rows"][0])
    assert len(rows) == len(record["rows"])


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_and_one_seed_decides_nothing_of_trained_models(name: str, tmp_path: Path) -> None:
    found: Result = importlib.import_module(name).run(Short(tmp_path))
    assert found.rows
    assert {tuple(row) for row in found.rows} == {tuple(found.rows[0])}
    assert found.verdict
    assert found.figure.axes
    trained = (tmp_path / "runs").exists()
    assert found.holds is (None if trained else True)
