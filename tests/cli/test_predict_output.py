"""Laws of predict's --output: written whole, or what was there stays."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.cli import main, predict
from seqtrain.errors import UserError
from seqtrain.files.untrusted import check_output
from seqtrain.tasks.next_token import Continue, NextToken


class Continuing(Continue):
    """Goes on with "!"; at the text "end" something else happens first."""

    def __init__(self, at_end: BaseException | None = None) -> None:
        self.at_end = at_end
        self.task = NextToken(tied=True, dim=1, vocab_size=2)  # says in which order prompt and answer stand

    def reason(self, text: str) -> str | None:
        return None if text else "holds no text"

    def predict(self, texts: Any, **options: Any) -> Any:
        if "end" in texts and self.at_end is not None:
            raise self.at_end
        return [{"prompt": text, "text": "!"} for text in texts]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.txt"
    path.write_text("precious\n")
    return path


def ask(monkeypatch: pytest.MonkeyPatch, *words: object, at_end: BaseException | None = None) -> int:
    texts = SimpleNamespace(series=None)
    opened = SimpleNamespace(task=NextToken, preprocessor=texts, predictor=lambda name: Continuing(at_end))
    monkeypatch.setattr(predict, "load", lambda *args, **options: SimpleNamespace(opened=opened))
    return predict.main(["run", *map(str, words)])


def test_answers_take_the_place_of_an_old_file(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, "a", "", "é", "--output", old) == 2
    assert old.read_text() == "a!\né!\n"
    assert ask(monkeypatch, "a", "--output", old, "--json") == 0
    assert json.loads(old.read_text()) == {"prompt": "a", "text": "!"}


def test_an_old_file_stays_where_nothing_is_answered(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ([""], ["", "--json"]):
        with pytest.raises(UserError, match="not written, since no text was answered"):
            ask(monkeypatch, *words, "--output", old)
    assert old.read_text() == "precious\n"
    assert os.listdir(old.parent) == [old.name]


def test_an_old_file_stays_where_the_command_ends_half_way(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = old.with_name("texts")
    texts.write_text("a\n" * Continue.at_a_time + "end\n")
    for error in (KeyboardInterrupt(), UserError("too much")):
        with pytest.raises(type(error)):
            ask(monkeypatch, "--input", texts, "--output", old, at_end=error)
    assert old.read_text() == "precious\n"
    assert sorted(os.listdir(old.parent)) == [old.name, texts.name]


def test_the_file_behind_a_link_is_written_and_the_link_stays(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = old.with_name("link")
    link.symlink_to(old.name)
    assert ask(monkeypatch, "a", "--output", link) == 0
    assert link.is_symlink()
    assert old.read_text() == "a!\n"


def test_a_pipe_takes_the_answers_and_stays_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    assert ask(monkeypatch, "a", "--output", pipe) == 0
    reader.join(60)
    assert found == ["a!\n"]
    assert pipe.is_fifo()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path, tmp_path / "none" / "file"):
        with pytest.raises(UserError, match=r"--output .*: (Is a directory|No such file or directory)"):
            ask(monkeypatch, "a", "--output", place)


KEPT = (
    *("run/config.yaml", "run/metrics.jsonl", "run/summary.json", "run/checkpoints/best.ckpt"),
    *("sweep/sweep.yaml", "sweep/study.db", "export/model.safetensors"),
)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    for name in (*KEPT, "export/config.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious\n")
    return tmp_path


def test_no_answer_takes_the_place_of_what_a_run_keeps(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in KEPT:
        path, link = kept / name, kept / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        for words in (("predict", "run", "x", "--output"), ("compare", "run", "--csv"), ("compare", "run", "--html")):
            for output in (path, link):
                assert main.main([*words, str(output)]) == 2
                error = capsys.readouterr().err
                assert error.startswith(
                    f"error: {words[-1]} {output}: this file belongs to {path.parent} and would be overwritten"
                )
                assert error.count("\n") == 1
        assert path.read_text() == "precious\n"


def test_an_answer_may_lie_beside_what_a_run_keeps_and_replace_an_earlier_one(kept: Path) -> None:
    (kept / "run" / "answers.txt").touch()
    for name in ("run/answers.txt", "run/new.csv", "config.yaml", "summary.json"):
        check_output("--output", kept / name)
