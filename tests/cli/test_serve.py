"""`seqtrain serve`: the newest report on a folder, to this machine alone, and nothing else of the disk."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.cli import serve
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from tests.support import fake_runs, pages
from tests.support.pages import block, content
from tests.support.tiny import wait_until


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[serve.Server]:
    """A server of the runs below the test's folder, whose report never rests."""
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* Plotly */")  # 5 MB that nobody looks at here
    monkeypatch.setattr(serve, "REST_FACTOR", 0.0)
    with serve.listening(serve.Report(tmp_path, rest=0.0), "127.0.0.1", 0) as server, answering(server):
        yield server


@contextlib.contextmanager
def answering(server: serve.Server) -> Iterator[None]:
    """The server at work, in a thread of its own."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def ask(server: serve.Server, path: str = "/", method: str = "GET", host: str = "") -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", int(server.port), timeout=60)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.port}"})
    answer = connection.getresponse()
    return answer, answer.read().decode()


def test_serve_gives_the_newest_report_and_its_mark_changes_with_the_runs(served: serve.Server, tmp_path: Path) -> None:
    answer, text = ask(served)
    assert (answer.status, "no run to show yet" in text) == (200, True)
    path = fake_runs.run(tmp_path / "one")
    answer, text = ask(served)
    assert [run["name"] for run in content(text)["runs"]] == [f"{tmp_path.name}/one"]
    assert content(text)["mark"] == answer.headers["ETag"]
    again, nothing = ask(served, method="HEAD")
    assert (again.headers["ETag"], nothing) == (answer.headers["ETag"], "")
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 100, "tokens": 2000, "seconds": 20.0, "validation/bits_per_byte": 1.25}\n')
    newer, text = ask(served)
    assert newer.headers["ETag"] not in ("", answer.headers["ETag"])
    assert 1.25 in block(text, f"metric-{content(text)['metrics'].index('validation/bits_per_byte')}")[0][1]


def _hold(path: Path, line: Connection) -> None:
    run = Run(path)
    run.append({"step": 200})
    line.send("held")
    signal.pause()


def test_the_mark_changes_when_a_run_is_killed(tmp_path: Path) -> None:
    path = fake_runs.run(tmp_path / "one", status="running")
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe()
    holder = forked.Process(target=_hold, args=(path, theirs))
    holder.start()
    assert ours.recv() == "held"
    going = serve.state_of(tmp_path)
    assert serve.state_of(tmp_path) == going
    holder.kill()
    holder.join()
    assert serve.state_of(tmp_path) != going


def test_serve_tells_the_trials_that_left_no_run(served: serve.Server, tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "sweep", {"lstm": (1.5,)})
    fake_runs.trial(tmp_path / "sweep", 1, "model=bert", status="refused", reason="does not fit")
    assert content(ask(served)[1])["missing"] == ["no run: sweep/001 model=bert: refused: does not fit"]


def test_serve_answers_a_head_with_no_body_and_lets_no_page_frame_it(served: serve.Server) -> None:
    with socket.create_connection(("127.0.0.1", int(served.port)), timeout=60) as connection:
        connection.sendall(f"HEAD / HTTP/1.0\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
        answer = connection.makefile("rb").read()
    assert answer.endswith(b"\r\n\r\n")
    lines = answer.decode().splitlines()
    assert {
        "Content-Security-Policy: frame-ancestors 'none'",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-cache",
    } <= set(lines)


def test_serve_leaves_a_damaged_run_out_and_says_so(served: serve.Server, tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "one")
    fake_runs.run(tmp_path / "two")
    (tmp_path / "two" / "summary.json").write_text("{")
    found = content(ask(served)[1])
    assert [run["name"] for run in found["runs"]] == [f"{tmp_path.name}/one"]
    assert len(found["missing"]) == 1
    assert "two/summary.json cannot be read" in found["missing"][0]


def test_serve_keeps_the_last_report_while_every_run_is_damaged(
    served: serve.Server, tmp_path: Path, capsys: Any
) -> None:
    fake_runs.run(tmp_path / "one")
    before = ask(served)[1]
    (tmp_path / "one" / "summary.json").write_text("{")
    assert ask(served)[1] == before
    os.utime(tmp_path / "one" / "metrics.jsonl", ns=(0, 0))  # it goes on, and the trouble is the same
    assert ask(served)[1] == before
    assert capsys.readouterr().err.count("no newer report") == 1


def test_serve_gives_nothing_else_of_the_disk(served: serve.Server, tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "one")
    for path in ("/one/config.yaml", "/../etc/passwd", "//etc/passwd", "/index.html", "/%2e%2e/"):
        assert ask(served, path)[0].status == 404, path
    assert ask(served, "/?a=b")[0].status == 200
    assert ask(served, method="POST")[0].status == 501


def test_serve_refuses_names_that_strangers_let_lead_here(served: serve.Server) -> None:
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1:1", f"localhost.evil.example:{served.port}"):
        assert ask(served, host=host)[0].status == 421, host
    assert ask(served, host=f"localhost:{served.port}")[0].status == 200


def test_serve_says_when_others_can_read_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve.Server, "serve_forever", lambda server: None)
    for host, warned in (("127.0.0.1", False), ("0.0.0.0", True)):
        assert serve.main([str(tmp_path), "--host", host, "--port", "0"]) == 0
        said = capsys.readouterr().err
        assert f"serving {tmp_path} at http://{host}:" in said
        assert (f"anyone who reaches {host} can read the report: there is no password" in said) == warned


@pytest.mark.parametrize(("took", "rests"), [(1.0, 10.0), (20.0, 20.0 * serve.REST_FACTOR)])
def test_a_report_rests_for_a_while_and_the_longer_the_longer_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float, rests: float
) -> None:
    clock, made_at = [100.0], []
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(serve, "state_of", lambda folder: str(clock[0]))  # there is always something new

    def make(report: serve.Report, mark: str) -> None:
        made_at.append(clock[0])
        clock[0] += took

    monkeypatch.setattr(serve.Report, "_make", make)
    report = serve.Report(tmp_path, rest=10.0)
    for later in (0.0, rests - 0.5, 1.0):
        clock[0] += later
        report.answer("/")
    assert made_at == [100.0, 100.5 + took + rests]


def test_what_is_recorded_while_a_report_is_made_is_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, states, made_of = [100.0], ["begun"], []
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(serve, "state_of", lambda folder: states[-1])

    def make(report: serve.Report, mark: str) -> None:
        made_of.append(mark)
        states.append("ended")  # and nothing is recorded after that

    monkeypatch.setattr(serve.Report, "_make", make)
    report = serve.Report(tmp_path, rest=10.0)
    for _ in range(3):
        report.answer("/")
        clock[0] += 11.0
    assert made_of == ["begun", "ended"]


def asked_since(server: serve.Server, mark: str, home: str = "/") -> tuple[int, dict[str, Any]]:
    """The status and the newer data than those of a mark, as a page that is open asks for them."""
    connection = HTTPConnection("127.0.0.1", int(server.port), timeout=60)
    connection.request("GET", f"{home}data", headers={"If-None-Match": mark})
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, json.loads(text) if text else {}


def test_newer_data_are_those_of_the_page_that_is_loaded_anew(served: serve.Server, tmp_path: Path) -> None:
    """Whatever happens to runs: what an open page is given is what a page that is loaded now has."""
    for number in range(3):
        pages.run(tmp_path / f"b{number}", seed=number, records=20)
    mark = ask(served)[0].headers["ETag"]
    for happen in (
        lambda: pages.run(tmp_path / "a", model="gru", records=30, config={"model.heads": 3}),
        lambda: pages.sample(tmp_path / "b1", 999, "new"),
        lambda: shutil.rmtree(tmp_path / "b0"),
    ):
        assert asked_since(served, mark) == (304, {})
        happen()
        status, told = asked_since(served, mark)
        page, text = ask(served)
        assert (status, told["known"]) == (200, content(text))
        assert all(f'id="{name}">{packed}</script>' in text for name, packed in told["blocks"].items())
        mark = page.headers["ETag"]


def test_a_page_is_not_sent_again_to_whom_has_it(served: serve.Server, tmp_path: Path) -> None:
    pages.run(tmp_path / "one", records=50)
    plain, text = ask(served)
    assert int(plain.headers["Content-Length"]) == len(text.encode())
    request = urllib.request.Request(served.address, headers={"If-None-Match": plain.headers["ETag"]})
    with pytest.raises(urllib.error.HTTPError, match="304"):
        urllib.request.urlopen(request, timeout=60)


def test_strangers_names_get_no_data_and_no_sweep(tmp_path: Path) -> None:
    for name in ("first", "second"):
        fake_runs.sweep(tmp_path / name, {"lstm": (1.5,)})
    with serve.listening(serve.Site(tmp_path), "127.0.0.1", 0) as server, answering(server):
        for path in ("/data", "/sweep/first/", "/all/", "/all/data"):
            assert ask(server, path, host="evil.example")[0].status == 421, path


def test_an_index_leads_to_its_sweeps_and_to_nothing_else_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* Plotly */")
    for name in ("first", "a & b/second"):
        fake_runs.sweep(tmp_path / name, {"lstm": (1.5, 1.6)})
    with serve.listening(serve.Site(tmp_path, rest=0.0), "127.0.0.1", 0) as server, answering(server):
        rows = content(ask(server)[1])["rows"]
        assert sorted(row["address"] for row in rows) == ["sweep/a%20%26%20b/second/", "sweep/first/"]
        for row in rows:
            found = content(ask(server, f"/{row['address']}")[1])
            assert len(found["runs"]) == 2
            assert asked_since(server, found["mark"], f"/{row['address']}")[0] == 304
        assert len(content(ask(server, "/all/")[1])["runs"]) == 4
        for path in (
            *("/sweep/first", "/sweep/", "/sweep/first/../first/", "/sweep/../first/", "/first/", "/all", "/all/x"),
            *("/sweep/first/000/", "/sweep/first/sweep.yaml", "/sweep//first/", "/sweep/%2e%2e/", "/../etc/passwd"),
        ):
            assert ask(server, path)[0].status == 404, path


def test_one_sweep_is_served_without_an_index(served: serve.Server, tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "first", {"lstm": (1.5,)})
    with serve.listening(serve.Site(tmp_path, rest=0.0), "127.0.0.1", 0) as server, answering(server):
        assert len(content(ask(server)[1])["runs"]) == 1
        assert ask(server, "/sweep/first/")[0].status == 404


def test_a_port_in_use_is_one_line(served: serve.Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^--port {served.port}: in use; give another one"):
        serve.listening(serve.Report(tmp_path), "127.0.0.1", int(served.port))


def test_serve_says_its_address_and_ends_with_130_on_ctrl_c(seqtrain: Any, tmp_path: Path) -> None:
    child = seqtrain.start("serve", ".", "--port", "0", cwd=tmp_path)
    wait_until(lambda: "serving . at http://127.0.0.1:" in child.stderr, child, "it serves")
    child.kill(signal.SIGINT)
    assert child.wait(20) == 130
    assert "Traceback" not in child.stderr
    assert seqtrain("serve", "nowhere", cwd=tmp_path).rc == 2
