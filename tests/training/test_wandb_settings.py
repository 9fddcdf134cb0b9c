"""W&B's settings come from the environment and the user's own folder: never from where one stands, or from the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from seqtrain.runs.summary import Summary
from seqtrain.training.loggers import wandb_logger
from tests.runs.test_git_commit import program
from tests.support import wandb_tools

OWN = wandb.Settings()
OPTIONS: dict[str, Any] = {
    **{"project": "mine", "entity": None, "name": "run", "group": None, "job_type": "train", "tags": []},
    **{"x": "steps", "mode": "offline", "log_model": False},
}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The addresses that were asked for an answer, of a person with a key who stands in a folder."""
    wandb_tools.alone(monkeypatch, tmp_path)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    wandb_logger.trusted_wandb.cache_clear()
    asked: list[str] = []
    monkeypatch.setattr(wandb_logger, "answers", lambda url: asked.append(url) or True)
    wandb.teardown()
    yield asked
    wandb.teardown()


def _lay(path: Path, url: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[default]\nbase_url = {url}\nmode = online\nx_executable = ./program\n")


@pytest.mark.parametrize("folder", ["wandb", ".wandb"])
def test_the_key_goes_to_no_host_that_the_working_folder_names(asked: list[str], capsys, folder: str) -> None:
    _lay(Path(folder) / "settings", "http://evil.example")
    assert wandb_logger.wandb_mode("auto") == "online"
    assert asked == [OWN.base_url]
    settings = wandb.setup().settings
    assert (settings.base_url, settings.x_executable) == (OWN.base_url, sys.executable)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder}/settings is not read" in line


def test_the_user_s_own_settings_hold_and_the_environment_goes_before_them(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lay(tmp_path / "settings" / "settings", "http://mine.example")
    assert wandb_logger.wandb_mode("auto") == "online"
    wandb.teardown()
    monkeypatch.setenv("WANDB_BASE_URL", "http://other.example")
    assert wandb_logger.wandb_mode("auto") == "online"
    assert asked == ["http://mine.example", "http://other.example"]


@pytest.mark.long  # the service of W&B begins
def test_a_record_of_wandb_runs_no_git_and_reads_no_config_of_the_working_folder(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    trace = Path("../trace").absolute()
    monkeypatch.setenv("PATH", f"{Path.cwd()}:{os.environ['PATH']}")
    program(Path.cwd(), trace).rename("git")
    Path("config-defaults.yaml").write_text("evil: {value: 1}\n")
    run = Path.cwd().parent / "run"
    run.mkdir()
    (run / "metrics.jsonl").touch()
    run_logger = wandb_logger.WandbLogger(**OPTIONS, directory=run, config={"seed": 1})
    assert dict(run_logger.experiment.config) == {"seed": 1, "options": {"seed": 1}}
    run_logger.end(Summary.from_plain({"status": "finished"}))
    assert not run_logger.broken
    assert not trace.exists(), trace.read_text()


def test_what_wandb_does_not_take_of_the_environment_is_one_line(
    asked: list[str], capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WANDB_BASE_URL", "http://["), ("WANDB_INIT_TIMEOUT", "abc")):
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            wandb_logger.trusted_wandb.cache_clear()
            wandb.teardown()
            assert wandb_logger.wandb_mode("auto") == "offline", value
        assert asked == []
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("W&B: offline, because there is an invalid W&B variable in the environment ("), value
