"""Laws of the sinks: no prompt, no hang, no secret, and a failure never ends a run."""

from __future__ import annotations

import http.server
import json
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import wandb

from seqtrain.errors import UserError
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.folder import Asked, Sweep
from seqtrain.tasks.next_token import NextToken
from seqtrain.training.callbacks.curves import plot_curves
from seqtrain.training.loggers import base, wandb_logger
from seqtrain.training.loggers.base import RunLogger
from seqtrain.training.loggers.mlflow_logger import MLflowLogger
from seqtrain.training.loggers.tensorboard_logger import TensorBoardLogger
from seqtrain.training.loggers.wandb_logger import WandbLogger
from tests.support import wandb_tools

POINT = {"step": 10, "epoch": 0.5, "tokens": 640.0, "seconds": 1.0, "train/loss": 2.5}
RECORDS = [
    {
        "step": step,
        "tokens": 64 * step,
        "train/bits_per_byte": 8 / step,
        "validation/bits_per_byte": 9 / step,
        "lr": 0.1,
    }
    for step in range(1, 20)
]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wandb_tools.alone(monkeypatch, tmp_path)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "outputs" / "run").mkdir(parents=True)
    return tmp_path / "outputs" / "run"


@pytest.fixture
def picture(directory: Path) -> Path:
    assert plot_curves(RECORDS, directory / "curve.png", NextToken)
    return directory / "curve.png"


OPTIONS = {
    "project": "p",
    "entity": None,
    "name": None,
    "group": None,
    "job_type": "train",
    "tags": ["mine"],
    "log_model": False,
}


def _wandb(directory: Path, mode: str = "auto", *, x: str = "tokens", **config: Any) -> WandbLogger:
    return WandbLogger(**OPTIONS, x=x, mode=mode, directory=directory, config=config)  # type: ignore[arg-type]


def _settled(path: Path) -> bytes:
    """The content once W&B's own process has written it: `finish` does not wait for that offline."""
    wandb_tools.read_file(path)
    return path.read_bytes()


def _sitting(directory: Path, places: range, status: str = "finished", **options: Any) -> None:
    """Records at these places of metrics.jsonl, and in it, with a sample after the last of them."""
    run_logger = _wandb(directory, "offline", **options)
    with open(directory / "metrics.jsonl", "a") as file:
        for place in places:
            record = {"step": 10 * place, "tokens": 640 * place, "validation/loss": place, "validation/bleu": 1 / place}
            file.write(json.dumps(record) + "\n")
            run_logger.log_metrics(record | {"record": place}, record["step"])
    run_logger.log_text("samples", "text", 10 * places[-1])
    run_logger.end(
        Summary.from_plain({"status": status, "steps": 10 * places[-1], "best": {"step": 20}, "command": ["secret"]})
    )


def test_wandb_is_offline_without_a_key_and_says_so_in_one_line(directory: Path, capfd) -> None:
    assert _wandb(directory).mode == "offline"
    assert capfd.readouterr().err == "W&B: offline, because there is no API key: set one with `wandb login`\n"


def test_wandb_is_offline_where_the_host_never_answers(directory: Path, monkeypatch, capfd) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr(base, "MAX_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(socket, "create_connection", lambda *args: threading.Event().wait())
    assert _wandb(directory).mode == "offline"
    assert "check the network" in capfd.readouterr().err


def test_the_mode_of_the_environment_is_respected_in_silence(directory, monkeypatch, capfd) -> None:
    for said, mode in {"offline": "offline", "dryrun": "offline", "disabled": "disabled"}.items():
        monkeypatch.setenv("WANDB_MODE", said)
        assert _wandb(directory).mode == mode
        assert capfd.readouterr().err == ""


def test_online_that_cannot_be_is_a_fault_with_the_remedy(directory: Path) -> None:
    with pytest.raises(
        UserError, match=r"logger\.wandb\.mode=online: there is no API key.*; or use logger\.wandb\.mode=off"
    ):
        _wandb(directory, "online")


def test_a_host_answers_only_where_something_listens(monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with wandb_tools.host() as server:
        assert base.answers(server.url)
    assert not base.answers(server.url)
    with wandb_tools.host() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        assert base.answers("http://far.invalid")


@pytest.mark.long
def test_wandb_keeps_everything_in_the_run_directory_and_no_secret(directory, picture, monkeypatch, capfd) -> None:
    monkeypatch.setattr(sys, "argv", ["seqtrain", "train", "+logger.wandb.api_key=VERYSECRET"])
    run_logger = _wandb(directory, "offline", model={"dim": 64})
    run_logger.log_metrics(POINT, 10)
    run_logger.log_text("samples", "<b>text</b>", 10)
    run_logger.log_image("learning_curve", picture, 10)
    run_logger.end(Summary.from_plain({"status": "finished"}))
    assert capfd.readouterr() == ("", "")
    (record,) = directory.glob("wandb/offline-run-*/*.wandb")
    content = _settled(record)
    assert b"train/loss" in content
    assert b'{"dim":64}' in content
    assert b"VERYSECRET" not in content
    (page,) = directory.glob("wandb/offline-run-*/files/media/html/*.html")
    assert "&lt;b&gt;text" in page.read_text()


def test_a_resumed_run_goes_on_in_the_same_wandb_run(directory: Path) -> None:
    _sitting(directory, range(1, 4), "interrupted")
    _sitting(directory, range(4, 6))
    first, second = map(wandb_tools.read_file, wandb_tools.files(directory))
    assert first.about["id"] == second.about["id"] == (directory / "wandb_id").read_text()
    assert first.places() + second.places() == [1, 2, 3, 4, 5], "W&B wants its own count of rows to go up"
    assert len(first.rows + second.rows) == 5, "samples stand in the row of their record"
    assert (first.exit_code, second.exit_code) == (1, 0)


def _trial(folder: Path, number: int, label: str) -> Path:
    """The run directory of a trial of a sweep."""
    sweep = Sweep.open(folder / "sweep") if number else Sweep.create(folder / "sweep", Asked(overrides=()))
    sweep.plan(number, label.split(), label).path.mkdir()
    return sweep.trial(number).path


def test_wandb_s_own_file_of_a_trial_says_what_it_is(tmp_path: Path) -> None:
    trial = _trial(tmp_path, 0, "model=lstm seed=1")
    (trial / "summary.json").write_text(json.dumps({"flops_per_token": 7.0}))
    config = {"model": {"_target_": "seqtrain.models.recurrent.LSTM", "dim": 8}, "task": {"_target_": "a.b.NextToken"}}
    _sitting(trial, range(1, 4), x="flops", **config)
    (path,) = wandb_tools.files(trial)
    found = wandb_tools.read_file(path)
    expected = {"name": "model=lstm seed=1", "group": "sweep", "job_type": "train", "project": "p"}
    assert expected.items() <= found.about.items()
    assert found.about["tags"] == ["mine"]
    assert found.config == {"model": "lstm", "task": "next_token", "options": config}
    assert found.axis == "flops"
    records = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    assert found.points() == [record | {"flops": 7.0 * record["tokens"]} for record in records]
    figures = {"status": "finished", "best": {"step": 20}}
    assert figures.items() <= found.summary.items()
    assert "command" not in found.summary


def test_trials_never_share_a_wandb_run_whoever_starts_them(tmp_path: Path, monkeypatch) -> None:
    identities = set()
    for number in range(3):
        for name, value in wandb_tools.agent("theirs", tmp_path / "given.yaml").items():
            monkeypatch.setenv(name, value)
        run_logger = _wandb(_trial(tmp_path, number, f"seed={number}"), "offline")
        identities.add(run_logger.identified()["id"])
    assert len(identities - {"theirs"}) == 3


@pytest.mark.long
def test_records_go_on_where_the_network_dies(directory, monkeypatch, capfd) -> None:
    records = [{"step": step, "tokens": 64 * step, "train/loss": 1 / step, "record": step} for step in range(1, 9)]
    monkeypatch.setattr(wandb_logger, "MAX_FINISH_SECONDS", 0.5)
    wandb.teardown()
    with wandb_tools.host() as server:
        for name, value in wandb_tools.environment(server).items():
            monkeypatch.setenv(name, value)
        run_logger = _wandb(directory)
        for record in records[:4]:
            run_logger.log_metrics(record, record["step"])
    for record in records[4:]:
        run_logger.log_metrics(record, record["step"])
    run_logger.end(Summary.from_plain({"status": "finished"}))
    (path,) = wandb_tools.files(directory)
    found = wandb_tools.read_file(path)
    assert found.places() == list(range(1, 9))
    assert [point["train/loss"] for point in found.points()] == [record["train/loss"] for record in records]
    assert capfd.readouterr().err == (
        f"W&B: no answer for 0.5 s; `seqtrain sync {directory}` sends the whole record as a new run\n"
    )
    wandb.teardown()


class _Refusal(http.server.BaseHTTPRequestHandler):
    """A W&B host that knows no key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401)
        self.end_headers()
        self.wfile.write(b'{"errors": [{"message": "no\\nsuch key"}]}')

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.long
def test_wandb_goes_on_offline_when_the_host_refuses_the_key(directory: Path, monkeypatch, capfd) -> None:
    wandb.teardown()  # forgets the settings that it read before
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusal) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{host.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        run_logger = _wandb(directory)
        run_logger.log_metrics(POINT, 10)
        run_logger.end(Summary.from_plain({"status": "finished"}))
        host.shutdown()
    assert b"train/loss" in _settled(next(directory.glob("wandb/offline-run-*/*.wandb")))
    said = capfd.readouterr().err.splitlines()
    assert [line.startswith("W&B: offline, because going online failed: ") for line in said] == [True]
    wandb.teardown()


def test_a_sink_that_fails_is_left_out_in_one_line(directory: Path, picture: Path, capfd) -> None:
    calls = []

    class Broken(RunLogger):
        def _metrics(self, metrics: dict[str, Any], step: int) -> None:
            calls.append(step)
            raise OSError("the host\nis gone")

        def _text(self, name: str, text: str, step: int) -> None:
            calls.append(step)

        def _image(self, name: str, path: Path, step: int) -> None:
            calls.append(step)

        def _end(self, figures: dict[str, Any]) -> None:
            calls.append(-1)

    run_logger = Broken("The sink", directory)
    run_logger.log_metrics(POINT, 10)
    run_logger.log_metrics(POINT, 20)
    run_logger.log_text("samples", "text", 20)
    run_logger.log_image("curve", picture, 20)
    run_logger.end(Summary.from_plain({"status": "finished"}))
    assert calls == [10]
    assert capfd.readouterr().err == "The sink failed and is disabled from here on: the host is gone\n"


def events(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard's own reader finds below a run directory: points of scalars; texts and pictures by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(directory / "tensorboard"))
    read.Reload()
    tags = read.Tags()
    scalars = {tag: [(point.step, point.value) for point in read.Scalars(tag)] for tag in tags["scalars"]}
    return {**scalars, **{tag: [] for tag in [*tags["images"], *tags["tensors"]]}}


def test_tensorboard_gets_metrics_config_samples_and_plots(directory: Path, picture: Path) -> None:
    run_logger = TensorBoardLogger(directory=directory, config={"seed": 1})
    run_logger.log_metrics(POINT, 10)
    run_logger.log_text("samples", "text", 10)
    run_logger.log_image("learning_curve", picture, 10)
    run_logger.end(Summary.from_plain({"status": "finished"}))
    found = events(directory)
    assert found["train/loss"] == [(10, 2.5)]
    assert {"tokens", "config/text_summary", "samples/text_summary", "learning_curve"} <= found.keys()


def test_tensorboard_forgets_what_a_resume_overwrites(directory: Path) -> None:
    for steps in ((10, 20, 30), (20, 30)):
        run_logger = TensorBoardLogger(directory=directory, config={})
        for step in steps:
            run_logger.log_metrics({"step": step, "loss": float(steps[0])}, step)
        run_logger.end(Summary.from_plain({"status": "interrupted"}))
    assert events(directory)["loss"] == [(10, 10.0), (20, 20.0), (30, 20.0)]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_a_fault_that_names_the_extra(directory: Path, monkeypatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    made: dict[str, Any] = {
        "tensorboard": TensorBoardLogger,
        "mlflow": partial(MLflowLogger, experiment="e", tracking_uri=None, log_model=False),
    }
    with pytest.raises(UserError, match=rf"logger={name} needs a package: pip install 'seqtrain\[{name}\]'"):
        made[name](directory=directory, config={})


def test_the_learning_curve_is_a_picture_whenever_there_is_a_point(tmp_path: Path) -> None:
    few = [[], [{"step": 1, "seconds": 1.0}], RECORDS[:1], [{"tokens": 1, "train/loss": float("nan")}], RECORDS]
    drawn = [plot_curves(records, tmp_path / f"{number}.png", NextToken) for number, records in enumerate(few)]
    assert drawn == [False, False, True, False, True]
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["2.png", "4.png"]
    assert (tmp_path / "4.png").read_bytes().startswith(b"\x89PNG")
