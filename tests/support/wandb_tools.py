"""Readers of what W&B keeps: its offline files, and a host of it on this machine that remembers what it was sent."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 10.0  # seconds that W&B's own process has to write a file
BLOCK, HEADER, FULL, LAST = 32768, 7, 1, 4  # W&B's files are logs as LevelDB writes them, after seven bytes of its own


@dataclass
class Recorded:
    """One W&B run: what it was called, its rows in their order, and the summary at the end."""

    about: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    axis: str = ""
    exit_code: int | None = None

    def points(self) -> list[dict[str, Any]]:
        """The numbers of each row, without what W&B adds."""
        return [_ours(row) for row in self.rows if "step" in row]

    def places(self) -> list[int]:
        """The places in metrics.jsonl of the records."""
        return [row["_step"] for row in self.rows if "step" in row]


def _ours(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not (name.startswith("_") or _is_media(name, value))}


def _is_media(name: str, value: Any) -> bool:
    return "." in name or isinstance(value, dict)


def files(run: Path) -> list[Path]:
    """W&B's own files of a run, the oldest first."""
    return sorted(path for path in run.glob("wandb/*run-*/*.wandb") if path.parent.name != "latest-run")


def read_file(path: Path) -> Recorded:
    """What a file of W&B's holds, in its own messages, once its last one is there: `finish` does not wait for that."""
    until = time.monotonic() + PATIENCE
    while (found := _read(path)).exit_code is None and time.monotonic() < until:
        time.sleep(0.02)
    return found


def _read(path: Path) -> Recorded:
    found = Recorded()
    for record in _messages(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found.about = {
                "id": run.run_id,
                "name": run.display_name,
                "group": run.run_group,
                "job_type": run.job_type,
                "tags": list(run.tags),
                "project": run.project,
                "sweep": run.sweep_id,
            }
            found.config = {item.key: json.loads(item.value_json) for item in run.config.update if item.key != "_wandb"}
        elif kind == "history":
            found.rows.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "summary":
            found.summary |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
        elif kind == "metric":
            found.axis = record.metric.step_metric or found.axis
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def _messages(path: Path) -> Iterator[Any]:
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    data, position, parts = path.read_bytes(), HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:  # what is left of a block is filled up
            position += BLOCK - position % BLOCK
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts += data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()  # pyright: ignore[reportAttributeAccessIssue]
            try:
                record.ParseFromString(parts)
            except DecodeError:  # W&B's own process is still writing it: there is no last message either
                return
            yield record
            parts = b""


class Host(http.server.ThreadingHTTPServer):
    """As much of W&B's host as a run needs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.runs: dict[str, Recorded] = {}
        self.lines: dict[str, list[str]] = {}  # of history, by run

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: W&B hangs up as it likes."""

    def stream(self, name: str, files: dict[str, dict[str, Any]]) -> None:
        history = files.get("wandb-history.jsonl", {"offset": 0, "content": []})
        lines = self.lines.setdefault(name, [])
        lines[history["offset"] : history["offset"] + len(history["content"])] = history["content"]
        self.runs[name].rows = [json.loads(line) for line in lines]
        for line in files.get("wandb-summary.json", {"content": []})["content"]:
            self.runs[name].summary = json.loads(line)


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Host

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        if found := re.fullmatch(r"/files/.*/([^/]+)/file_stream", self.path):
            self.server.stream(found[1], asked.get("files", {}))
            return self._answer({})
        kind = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
        answer = getattr(self, f"_{kind[1]}", lambda asked: {}) if kind else lambda asked: {}
        return self._answer({"data": answer(asked["variables"])})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({})

    def _UpsertBucket(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["name"]
        run = self.server.runs.setdefault(name, Recorded())
        names = {"displayName": "name", "groupName": "group", "jobType": "job_type", "tags": "tags", "sweep": "sweep"}
        run.about |= {ours: asked[theirs] for theirs, ours in names.items() if asked.get(theirs)}
        if asked.get("config"):
            config = json.loads(asked["config"])
            run.config = {key: entry["value"] for key, entry in config.items() if key != "_wandb"}
        project = {"id": "P", "name": asked["project"], "entity": {"id": "E", "name": "me"}}
        lines = len(self.server.lines.get(name, []))
        bucket = {"id": name, "name": name, "displayName": run.about.get("name"), "historyLineCount": lines}
        return {
            "upsertBucket": {"bucket": {**bucket, "config": asked["config"], "project": project}, "inserted": not lines}
        }

    def _RunResumeStatus(self, asked: dict[str, Any]) -> dict[str, Any]:
        run, lines = self.server.runs.get(asked["name"]), self.server.lines.get(asked["name"], [])
        bucket = run and {
            "id": asked["name"],
            "name": asked["name"],
            "displayName": run.about.get("name"),
            "summaryMetrics": json.dumps(run.summary),
            "historyLineCount": len(lines),
            "historyTail": json.dumps(lines[-1:]),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "config": json.dumps({key: {"value": value} for key, value in run.config.items()}),
            "wandbConfig": json.dumps({"t": 1}),
            "tags": [],
        }
        return {"model": {"id": "P", "name": "p", "entity": {"id": "E", "name": "me"}, "bucket": bucket}}

    def _CreateRunFiles(self, asked: dict[str, Any]) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": f"{self.server.url}/upload/{name}"} for name in asked["files"]]
        return {"createRunFiles": {"runID": asked["run"], "uploadHeaders": [], "files": files}}

    def _answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def host() -> Iterator[Host]:
    """A host that answers until the block ends."""
    with Host() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No key, no mode and no settings of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(folder / "settings"))


def agent(run: str, given: Path) -> dict[str, str]:
    """What W&B's sweep agent says to the run that it starts, in the environment; `given`: its file of parameters."""
    return {
        "WANDB_SWEEP_ID": "swept",
        "WANDB_RUN_ID": run,
        "WANDB_PROJECT": "agents",
        "WANDB_SWEEP_PARAM_PATH": str(given),
    }


def environment(server: Host) -> dict[str, str]:
    """What a process needs to use this host."""
    return {
        "WANDB_BASE_URL": server.url,
        "WANDB_API_KEY": "0" * 40,
        "WANDB_MODE": "online",
        "WANDB_ERROR_REPORTING": "false",
        "no_proxy": "127.0.0.1",
    }
