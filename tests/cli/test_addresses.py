"""Where records go is the user's word: a run or a sweep that somebody else made sends nothing anywhere by itself."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.cli import resume, sweep
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Asked, Sweep
from seqtrain.training.loggers import mlflow_logger
from tests.support import fake_runs

THEIRS = "http://127.0.0.1:9/theirs"
SAYS = re.escape(f"logger.mlflow.tracking_uri={THEIRS}: its records would go there")


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def _run(path: Path, address: str | None = THEIRS) -> Path:
    logger = {
        "mlflow": {
            "_target_": "seqtrain.training.loggers.mlflow_logger.MLflowLogger",
            "experiment": "e",
            "tracking_uri": address,
        }
    }
    return fake_runs.run(path, config={"logger": logger})


def test_a_resumed_run_sends_nothing_to_a_server_that_only_it_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=SAYS):
        resume.main([str(_run(tmp_path / "run")), "trainer.max_steps=200"])


def test_an_address_that_is_typed_or_in_the_environment_is_the_user_s(tmp_path: Path, monkeypatch) -> None:
    run = Run(_run(tmp_path / "run"))
    sweep.check_run(run, [f"logger.mlflow.tracking_uri={THEIRS}"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", THEIRS)
    sweep.check_run(run)
    sweep.check_run(Run(_run(tmp_path / "none", None)))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mine")
    with pytest.raises(UserError, match=SAYS):
        sweep.check_run(run)


@pytest.mark.parametrize("where", ["sweep", "trial", "run"])
def test_a_resumed_sweep_sends_nothing_to_a_server_that_only_it_names(tmp_path: Path, where: str) -> None:
    word = f"logger.mlflow.tracking_uri='{THEIRS}'"
    words = ("logger=mlflow", f"++{word}") if where == "sweep" else ("seed=1",)
    sweep = Sweep.create(tmp_path / "sweep", Asked(overrides=words))
    trial = sweep.plan(0, ["seed=1", *([word] if where == "trial" else [])], "seed=1")
    if where == "run":
        Run(_run(trial.path)).update_summary(status="interrupted")
    with pytest.raises(UserError, match=SAYS):
        resume.main([str(sweep.path)])


class _Client:
    """A store that stood beside the run, which says where it keeps pictures."""

    kept = ""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def get_run(self, _: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=self.kept))

    def update_run(self, _: str, status: str) -> None:
        assert status == "RUNNING"


@pytest.fixture
def run_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mlflow_logger.MLflowLogger:
    """The sink of a run that was resumed, with a stand-in for MLflow."""
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=_Client))
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Param=None))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mlflow_id").write_text("abc")
    return mlflow_logger.MLflowLogger(
        experiment="e", tracking_uri=None, log_model=False, directory=tmp_path / "run", config={}
    )


def test_a_store_beside_the_run_keeps_pictures_beside_it_and_nowhere_else(
    tmp_path: Path, run_logger: mlflow_logger.MLflowLogger, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "mlflow.db").touch()
    monkeypatch.setattr(_Client, "kept", f"file://{tmp_path}/mlflow_artifacts/1/abc/artifacts")
    assert run_logger.experiment is not None
    assert not run_logger.broken
    run_logger._client = None
    monkeypatch.setattr(_Client, "kept", "file:///home/somebody/.ssh")
    assert run_logger.experiment is None
    assert "stores artifacts in file:///home/somebody/.ssh" in capsys.readouterr().err


def test_a_store_beside_the_run_that_is_a_pipe_is_not_waited_for(
    tmp_path: Path, run_logger: mlflow_logger.MLflowLogger, capsys
) -> None:
    os.mkfifo(tmp_path / "mlflow.db")
    assert run_logger.experiment is None
    assert "mlflow.db: neither a file nor a folder" in capsys.readouterr().err
