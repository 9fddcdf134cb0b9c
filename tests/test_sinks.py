"""Laws of the sinks: no prompt, no hang, no secret, and a failure never ends a run."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqtrain.callbacks import base_sink, sinks
from seqtrain.callbacks.base_sink import Sink
from seqtrain.callbacks.curves import plot_curves
from seqtrain.faults import Fault

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
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no mode and no settings of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "settings"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "outputs" / "run").mkdir(parents=True)
    return tmp_path / "outputs" / "run"


@pytest.fixture
def picture(directory: Path) -> Path:
    assert plot_curves(RECORDS, directory / "curve.png")
    return directory / "curve.png"


@contextlib.contextmanager
def _listening(backlog: int = 1) -> Iterator[str]:
    """The address of a host that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as host:
        yield f"http://127.0.0.1:{host.getsockname()[1]}"


def _wandb(directory: Path, mode: str = "auto", **config: Any) -> Sink:
    return sinks.wandb(
        project="p",
        entity=None,
        name=None,
        group=None,
        tags=[],
        mode=mode,
        directory=directory,
        config=config,  # type: ignore[arg-type]
    )


def _settled(path: Path) -> bytes:
    """The content once W&B's own process has written it: `finish` does not wait for that offline."""
    until = time.monotonic() + 10
    while b"train/loss" not in path.read_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    return path.read_bytes()


def test_wandb_is_offline_without_a_key_and_says_so_in_one_line(directory: Path, capfd) -> None:
    assert _wandb(directory)._mode == "offline"
    assert capfd.readouterr().err == "W&B: offline, because there is no API key: `wandb login` gives one\n"


def test_wandb_is_offline_in_seconds_where_the_host_is_silent(directory: Path, monkeypatch, capfd) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr(base_sink, "PATIENCE", 0.2)
    monkeypatch.setattr(socket, "create_connection", lambda *args: threading.Event().wait())
    begin = time.monotonic()
    assert _wandb(directory)._mode == "offline"
    assert time.monotonic() - begin < 2
    assert "check the network" in capfd.readouterr().err


@pytest.mark.parametrize(("said", "mode"), [("offline", "offline"), ("dryrun", "offline"), ("disabled", "disabled")])
def test_the_mode_of_the_environment_is_respected_in_silence(directory, monkeypatch, capfd, said, mode) -> None:
    monkeypatch.setenv("WANDB_MODE", said)
    assert _wandb(directory)._mode == mode
    assert capfd.readouterr().err == ""


def test_wandb_is_online_with_a_key_for_a_host_that_answers(directory: Path, monkeypatch) -> None:
    monkeypatch.setattr(sinks, "_wandb_problem", lambda: None)
    assert _wandb(directory)._mode == "online"


def test_online_that_cannot_be_is_a_fault_with_the_remedy(directory: Path) -> None:
    with pytest.raises(
        Fault, match=r"logger\.wandb\.mode=online cannot be: no API key.*; or use logger\.wandb\.mode=off"
    ):
        _wandb(directory, "online")


def test_a_host_answers_only_where_something_listens(monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with _listening() as address:
        assert base_sink.answers(address)
    assert not base_sink.answers(address)
    with _listening() as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "")
        assert base_sink.answers("http://far.invalid")


def test_a_key_in_netrc_counts_for_its_own_host_only(tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine here login user password secret\n")
    assert sinks._in_netrc("here")
    assert not sinks._in_netrc("there")


def test_wandb_keeps_everything_in_the_run_directory_and_no_secret(directory, picture, monkeypatch, capfd) -> None:
    monkeypatch.setattr(sys, "argv", ["seqtrain", "train", "+data.hf_token=VERYSECRET"])
    sink = _wandb(directory, "offline", model={"dim": 64})
    sink.log_metrics(POINT, 10)
    sink.log_text("samples", "<b>text</b>", 10)
    sink.log_image("learning_curve", picture, 10)
    sink.finalize("success")
    assert capfd.readouterr() == ("", "")
    (record,) = directory.glob("wandb/offline-run-*/*.wandb")
    content = _settled(record)
    assert b"train/loss" in content
    assert b'{"dim":64}' in content
    assert b"VERYSECRET" not in content
    (page,) = directory.glob("wandb/offline-run-*/files/media/html/*.html")
    assert "&lt;b&gt;text" in page.read_text()


def test_a_resumed_run_stays_the_same_wandb_run(directory: Path) -> None:
    identities = set()
    for _ in range(2):
        sink = _wandb(directory, "offline")
        identities.add(sink.experiment.id)  # type: ignore[attr-defined]
        sink.finalize("failed")
    assert identities == {(directory / "wandb_id").read_text()}


class _Refusal(http.server.BaseHTTPRequestHandler):
    """A W&B host that knows no key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401)
        self.end_headers()
        self.wfile.write(b'{"errors": [{"message": "no\\nsuch key"}]}')

    def log_message(self, *args: object) -> None:
        pass


def test_wandb_goes_on_offline_when_the_host_refuses_the_key(directory: Path, monkeypatch, capfd) -> None:
    import wandb

    wandb.teardown()  # forgets the settings that it read before
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusal) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{host.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        sink = _wandb(directory)
        sink.log_metrics(POINT, 10)
        sink.finalize("success")
        host.shutdown()
    assert b"train/loss" in _settled(next(directory.glob("wandb/offline-run-*/*.wandb")))
    said = capfd.readouterr().err.splitlines()
    assert [line.startswith("W&B: offline, because going online failed: ") for line in said] == [True]
    wandb.teardown()


def test_a_sink_that_fails_is_left_out_in_one_line(directory: Path, picture: Path, capfd) -> None:
    calls = []

    class Broken(Sink):
        def _metrics(self, metrics: dict[str, float], step: int) -> None:
            calls.append(step)
            raise OSError("the host\nis gone")

        def _text(self, name: str, text: str, step: int) -> None:
            calls.append(step)

        def _image(self, name: str, path: Path, step: int) -> None:
            calls.append(step)

        def _end(self, success: bool) -> None:
            calls.append(-1)

    sink = Broken("The sink", directory)
    sink.log_metrics(POINT, 10)
    sink.log_metrics(POINT, 20)
    sink.log_text("samples", "text", 20)
    sink.log_image("curve", picture, 20)
    sink.finalize("success")
    assert calls == [10]
    assert capfd.readouterr().err == "The sink failed and is left out from here on: the host is gone\n"


def _events(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    scalars = {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in tags["scalars"]}
    return {**scalars, **{tag: [] for tag in [*tags["images"], *tags["tensors"]]}}


def test_tensorboard_gets_metrics_config_samples_and_plots(directory: Path, picture: Path) -> None:
    sink = sinks.tensorboard(directory=directory, config={"seed": 1})
    sink.log_metrics(POINT, 10)
    sink.log_text("samples", "text", 10)
    sink.log_image("learning_curve", picture, 10)
    sink.finalize("success")
    events = _events(directory)
    assert events["train/loss"] == [(10, 2.5)]
    assert {"tokens", "config/text_summary", "samples/text_summary", "learning_curve"} <= events.keys()


def test_tensorboard_forgets_what_a_resume_overwrites(directory: Path) -> None:
    for steps in ((10, 20, 30), (20, 30)):
        sink = sinks.tensorboard(directory=directory, config={})
        for step in steps:
            sink.log_metrics({"step": step, "loss": float(steps[0])}, step)
        sink.finalize("failed")
    assert _events(directory)["loss"] == [(10, 10.0), (20, 20.0), (30, 20.0)]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_a_fault_that_names_the_extra(directory: Path, monkeypatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    given = {"experiment": "e", "tracking_uri": None} if name == "mlflow" else {}
    with pytest.raises(Fault, match=rf"logger={name} needs a package: pip install 'seqtrain\[{name}\]'"):
        getattr(sinks, name)(**given, directory=directory, config={})


def test_the_learning_curve_is_a_picture_whenever_there_is_a_point(tmp_path: Path) -> None:
    few = [[], [{"step": 1, "seconds": 1.0}], RECORDS[:1], [{"tokens": 1, "train/loss": float("nan")}], RECORDS]
    drawn = [plot_curves(records, tmp_path / f"{number}.png") for number, records in enumerate(few)]
    assert drawn == [False, False, True, False, True]
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["2.png", "4.png"]
    assert (tmp_path / "4.png").read_bytes().startswith(b"\x89PNG")


def test_the_config_that_a_sink_gets_is_plain_json(directory: Path) -> None:
    sink = _wandb(directory, "offline", data={"path": "x", "lanes": 2})
    assert json.loads(json.dumps(dict(sink.experiment.config))) == {"data": {"path": "x", "lanes": 2}}  # type: ignore[attr-defined]
    sink.finalize("success")
