"""The first step does not wait for baselines, and one that fails costs a run nothing but itself."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli.main import main
from seqtrain.tasks.next_token import NextToken
from seqtrain.training.learner import Learner


def train(folder: Path, monkeypatch: pytest.MonkeyPatch, ends: int = 0) -> dict[str, Any]:
    """Train two steps in this process, which `ends` with this code; return the run's summary."""
    monkeypatch.setenv("SEQTRAIN_CACHE", str(folder / "cache"))
    (folder / "text.txt").write_text("to be or not to be\n" * 40)
    words = ["task=next_token", "data=text", f"data.path={folder}/text.txt", "model=rnn", "model.dim=4"]
    words += [
        "data.split_by=position",
        "tokenizer=byte",
        "trainer.max_steps=2",
        "logger=none",
        "trainer.accelerator=cpu",
        "callbacks=none",
    ]
    assert main(["train", *words, f"run_dir={folder}/run"]) == ends
    return json.loads((folder / "run" / "summary.json").read_text())


def test_the_first_step_does_not_wait_for_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    baselines, step = NextToken.baselines, Learner.training_step
    monkeypatch.setattr(NextToken, "baselines", lambda *given: done.append("baselines") or baselines(*given))
    monkeypatch.setattr(Learner, "training_step", lambda *given: done.append("step") or step(*given))
    summary = train(tmp_path, monkeypatch)
    assert done == ["step", "step", "baselines"]
    assert summary["baselines"]["validation"]["unigram"]["loss"] > 0


def test_a_baseline_that_fails_is_said_and_the_run_is_trained_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(NextToken, "baselines", fail)
    summary = train(tmp_path, monkeypatch)
    said = capsys.readouterr()
    assert said.err.count("validation: no baselines: MemoryError: no room") == 1
    assert summary["status"] == "finished"
    assert summary["metrics"]["validation"]["loss"] > 0
    assert "beside it" not in said.out


def test_a_run_interrupted_in_its_baselines_has_them_once_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as slow:
        slow.setattr(NextToken, "baselines", lambda *given: os.kill(os.getpid(), signal.SIGTERM))
        assert train(tmp_path, slow, ends=143)["status"] == "interrupted"
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    steps: list[int] = []
    monkeypatch.setattr(Learner, "training_step", lambda *given: steps.append(1))
    assert main(["resume", f"{tmp_path}/run"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (steps, summary["status"], summary["steps"]) == ([], "finished", 2)
    assert summary["baselines"]["validation"]["bigram"]["loss"] > 0
    assert summary["metrics"]["validation"]["loss"] > 0
