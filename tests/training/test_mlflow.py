"""Laws of the loggers that write to MLflow and to Trackio."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from seqtrain.errors import UserError
from seqtrain.runs.summary import Summary
from seqtrain.training.loggers.mlflow_logger import MLflowLogger
from tests.support import wandb_tools
from tests.support.pictures import PNG

PLAIN = {"log_model": False}
POINT = {"step": 10, "record": 3, "tokens": 640.0, "train/loss": 2.5}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "curve.png").write_bytes(PNG)
    return tmp_path / "run"


class _Client:
    """The part of MlflowClient that the sink uses, with its parameter names; remembers what was called."""

    calls: list[tuple] = []  # noqa: RUF012 - shared by all clients, as a server would be

    def __init__(self, tracking_uri: str | None = None) -> None:
        self.calls.append(("client", tracking_uri))

    def get_experiment_by_name(self, name: str) -> None:
        self.calls.append(("get_experiment_by_name", name))

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        self.calls.append(("create_experiment", name, artifact_location))
        return "1"

    def create_run(self, experiment_id: str, start_time=None, tags=None, run_name: str | None = None) -> Any:
        self.calls.append(("create_run", experiment_id, run_name))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="abc"))

    def update_run(self, run_id: str, status: str | None = None) -> None:
        self.calls.append(("update_run", run_id, status))

    def log_batch(self, run_id: str, metrics=(), params=(), tags=(), synchronous=None) -> None:
        self.calls.append(("log_batch", run_id, list(metrics), list(params), list(tags)))

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
        self.calls.append(("log_text", run_id, text, artifact_file))

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:
        self.calls.append(("log_artifact", run_id, local_path, artifact_path))

    def log_artifacts(self, run_id: str, local_dir: str, artifact_path: str | None = None) -> None:
        self.calls.append(("log_artifacts", run_id, sorted(path.name for path in Path(local_dir).iterdir())))

    def set_terminated(self, run_id: str, status: str | None = None, end_time: int | None = None) -> None:
        self.calls.append(("set_terminated", run_id, status))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[_Client]:
    """MLflow is a large optional package: a stand-in with the same signatures takes its place."""
    entities = types.ModuleType("mlflow.entities")
    entities.Metric = lambda key, value, timestamp, step: (key, value, step)  # type: ignore[attr-defined]
    entities.Param = entities.RunTag = lambda key, value: (key, value)  # type: ignore[attr-defined]
    mlflow = types.ModuleType("mlflow")
    mlflow.MlflowClient = _Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setattr(_Client, "calls", [])
    return _Client


def test_mlflow_writes_one_run_in_a_file_beside_the_runs(directory: Path, client: type[_Client]) -> None:
    run_logger = MLflowLogger(
        **PLAIN, experiment="e", tracking_uri=None, directory=directory, config={"model": {"dim": 64}, "seed": 1}
    )
    run_logger.log_metrics(POINT, 10)
    run_logger.log_text("samples", "text", 10)
    run_logger.log_image("learning_curve", directory / "curve.png", 10)
    run_logger.end(Summary.from_plain({"status": "finished", "best": {"step": 10}, "command": ["secret"]}))
    root = directory.parent
    points = [(name, value, 10) for name, value in POINT.items() if name not in ("step", "record")]
    assert client.calls == [
        ("client", f"sqlite:///{root}/mlflow.db"),
        ("get_experiment_by_name", "e"),
        ("create_experiment", "e", f"file://{root}/mlflow_artifacts"),
        ("create_run", "1", "run"),
        ("log_batch", "abc", [], [("model.dim", "64"), ("seed", "1")], []),
        ("log_batch", "abc", points, [], []),
        ("log_text", "abc", "text", "samples/step-00000010.txt"),
        ("log_artifact", "abc", str(directory / "curve.png"), "learning_curve"),
        ("log_batch", "abc", [("best/step", 10.0, 0)], [], []),
        ("set_terminated", "abc", "FINISHED"),
    ]


def test_an_address_that_is_typed_goes_before_that_of_the_environment(
    directory: Path, client: type[_Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///of_the_environment")
    for typed, expected in ((None, "sqlite:///of_the_environment"), ("sqlite:///x", "sqlite:///x")):
        client.calls.clear()
        run_logger = MLflowLogger(**PLAIN, experiment="e", tracking_uri=typed, directory=directory, config={})
        assert run_logger.experiment is not None  # pyright: ignore[reportAttributeAccessIssue]
        assert client.calls[0] == ("client", expected)


def test_a_resumed_run_stays_the_same_mlflow_run(directory: Path, client: type[_Client]) -> None:
    for _ in range(2):
        run_logger = MLflowLogger(**PLAIN, experiment="e", tracking_uri="sqlite:///x", directory=directory, config={})
        assert run_logger.experiment is not None
        run_logger.end(Summary.from_plain({"status": "interrupted"}))
    assert [call[0] for call in client.calls].count("create_run") == 1
    assert ("update_run", "abc", "RUNNING") in client.calls


def test_an_mlflow_server_that_does_not_answer_is_a_fault(
    directory: Path, client: type[_Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with wandb_tools.host() as server:
        gone = server.url
        MLflowLogger(**PLAIN, experiment="e", tracking_uri=gone, directory=directory, config={})
    for address in (gone, "http://[", "http://host:port", "http://host:99999", "http://", "http://.", "http://a..b"):
        with pytest.raises(UserError, match="does not answer: start the server or give another") as fault:
            MLflowLogger(**PLAIN, experiment="e", tracking_uri=address, directory=directory, config={})
        assert fault.value.lines[0].startswith(f"logger.mlflow.tracking_uri={address} ")


TRACKED = """
import json
from pathlib import Path
from seqtrain.runs.summary import Summary
from seqtrain.training.loggers.trackio_logger import TrackioLogger
logger = TrackioLogger(project="p", directory=Path("run"), config={"seed": 7, "run_dir": "run"})
for step in (1, 2):
    logger.log_metrics({"step": step, "time": 1.0, "train/loss": 1 / step}, step)
logger.log_text("samples", "a `text`", 2)
logger.end(Summary.from_plain({"status": "finished", "steps": 2, "metrics": {"validation/loss": 0.5}}))
assert not logger.broken
import trackio
(run,) = trackio.Api().runs("p")
print(json.dumps([run.name, run.config, trackio.SQLiteStorage.get_logs("p", run.name)]))
"""


@pytest.mark.long
def test_trackio_gets_records_texts_and_the_summary_and_writes_no_results(tmp_path: Path) -> None:
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", TRACKED]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    name, config, rows = json.loads(done.stdout)
    assert (name, config["seed"]) == ("run", 7)
    assert [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row] == [(1, 1.0), (2, 0.5)]
    assert [row["final/validation/loss"] for row in rows if "final/validation/loss" in row] == [0.5]
    assert [row["step"] for row in rows if "samples" in row] == [2]
