"""`seqtrain serve`: serve the report on a folder of runs on this machine, updated as the runs progress."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import os
import socket
import socketserver
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.compare.entries import read
from seqtrain.compare.page import report
from seqtrain.compare.page.content import safe_json
from seqtrain.compare.table import not_run
from seqtrain.compare.verdict import conclusions
from seqtrain.config.ranges import Range
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.runs.directory import CONFIG, METRICS, SUMMARY, is_written, list_runs
from seqtrain.runs.evaluations import EVALUATIONS

WAITING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="3">
<title>seqtrain</title><p>There is no run to show yet; this page reloads every 3 seconds.</p></html>"""

# A report is kept at least this many times as long as it took to make: runs need the machine more.
REST_FACTOR = 3.0
HTML, JSON = "text/html; charset=utf-8", "application/json"
PAGE, DATA = "/", "/data"  # addresses of a report: the page, and its data, which an open page fetches
# Parts of a run that the report shows: files, and folders that each validation writes files to.
SHOWN = (CONFIG, METRICS, SUMMARY, EVALUATIONS, "samples", "plots")

HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def main(argv: list[str]) -> int:
    """Run the command until it is interrupted."""
    parser = Parser(
        "serve",
        "Serve the report that `seqtrain compare DIR --html FILE` writes, updated while runs train.\n"
        "Only this machine can reach it; from another one use `ssh -L 8321:127.0.0.1:8321 MACHINE`.",
        "seqtrain serve outputs",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder of runs and sweeps")
    parser.add_argument("--port", type=bounded(Range(0, 65535, whole=True)), default=8321)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine only)")
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        raise UserError(f"{options.folder}: no such folder; name one that contains runs or sweeps")
    with listening(Site(options.folder), options.host, options.port) as server:
        say(f"serving {options.folder} at {server.address}; Ctrl-C ends it")
        if not server.private:
            say(f"anyone who reaches {options.host} can read the report: there is no password")
        server.serve_forever()
    return 0


@dataclass
class Answer:
    """An answer to a browser."""

    body: bytes
    kind: str
    mark: str  # its ETag


@dataclass
class Report:
    """The newest report on the runs below a folder."""

    folder: Path
    rest: float = 10.0  # minimum seconds between two reports
    trouble: str = ""  # why there is no report, or no newer one
    _content: report.PageContent | None = None
    _answers: dict[str, Answer] = field(default_factory=dict)
    _seen: str = ""
    _until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str) -> Answer | None:
        """Return the page or its data, rebuilt if the runs have changed and the last report is old enough."""
        if path not in (PAGE, DATA):
            return None
        # Several browsers may ask at once and share one report.
        with self._lock:
            self._renew()
            if self._content is None:
                return Answer(WAITING, HTML, '"none"') if path == PAGE else None
            if path not in self._answers:
                text, kind = (report.text, HTML) if path == PAGE else (report.data, JSON)
                self._answers[path] = Answer(text(self._content).encode(), kind, self._content.known["mark"])
            return self._answers[path]

    def _renew(self) -> None:
        if time.monotonic() < self._until:
            return
        mark = state_of(self.folder)
        if mark == self._seen:
            return
        start = time.monotonic()
        self._make(mark)
        took = time.monotonic() - start
        self._seen = mark  # also after a failure: the next try is when a run has changed
        self._until = time.monotonic() + max(self.rest, REST_FACTOR * took)

    def _make(self, mark: str) -> None:
        try:
            missing: list[str] = []
            results = conclusions(read([self.folder], missing))
            missing += not_run(sorted({self.folder, *(run.path.parent for run in list_runs(self.folder, []))}))
            self._content = report.content_of(results, title=str(self.folder), missing=missing, mark=mark)
            self._answers, self.trouble = {}, ""
        except (UserError, OSError) as error:  # keep the last report: a run may be half written, or being removed
            if str(error) != self.trouble:
                say(f"no newer report: {error}")
            self.trouble = str(error)


@dataclass
class Site:
    """The report on a folder. A folder of several sweeps has an index, a report for each, and one for all."""

    folder: Path
    rest: float = 10.0
    _reports: dict[Path, Report] = field(default_factory=dict)
    _index: report.Index = field(default_factory=report.Index)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str) -> Answer | None:
        """Return the answer of the report or the index at this path. The address of each report ends in a slash."""
        sweeps = report.sweeps_of(self.folder)
        if len(sweeps) < 2:
            return self._report(self.folder).answer(path)
        home, _, word = path.rpartition("/")
        if home == "":
            return self._list(sweeps, path)
        folders = {f"/{report.ALL}": self.folder}
        for sweep in sweeps:
            folders[f"/{report.SWEEP}/{quote(str(sweep.relative_to(self.folder)))}"] = sweep
        # Addresses are looked up in a dictionary, so that no part of them becomes a path.
        folder = folders.get(home)
        return None if folder is None else self._report(folder).answer(f"/{word}")

    def _report(self, folder: Path) -> Report:
        with self._lock:
            return self._reports.setdefault(folder, Report(folder, rest=self.rest))

    def _list(self, sweeps: list[Path], path: str) -> Answer | None:
        with self._lock:
            rows = self._index.rows(self.folder, sweeps, state_of)
        mark = f'"{hashlib.blake2b(safe_json(rows).encode(), digest_size=12).hexdigest()}"'
        if path == DATA:
            return Answer(safe_json({"mark": mark, "rows": rows}).encode(), JSON, mark)
        return Answer(report.index_page(str(self.folder), rows, mark).encode(), HTML, mark) if path == PAGE else None


class Server(socketserver.ThreadingTCPServer):
    """Server of the report, without access to the disk. The one of http.server would query DNS for its own name."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answers: Report | Site, host: str, port: int) -> None:
        self.answers = answers
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        bound, self.port = map(str, self.server_address[:2])
        self.private = ipaddress.ip_address(bound).is_loopback
        self.host = f"[{bound}]" if ":" in bound else bound

    @property
    def address(self) -> str:
        """The address for a browser."""
        return f"http://{self.host}:{self.port}/"

    def knows(self, host: str) -> bool:
        """Return True if a request's host is this server: an untrusted page may point its own host name here."""
        return not self.private or host.removesuffix(f":{self.port}") in ("localhost", self.host)


class Handler(BaseHTTPRequestHandler):
    """Handler for GET and HEAD requests of the server's few addresses."""

    server: Server  # type: ignore[assignment]
    timeout = 30  # seconds that a silent connection may hold a thread

    def do_GET(self) -> None:
        """Send a page, or its data."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Send the headers of a page; its ETag shows whether there is a newer one."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if not self.server.knows(self.headers.get("Host", "")):
            self.send_error(421, "This server answers its own machine only")
            return
        answer = self.server.answers.answer(self.path.partition("?")[0])
        if answer is None:
            self.send_error(404)
        elif answer.mark == self.headers.get("If-None-Match"):
            self._head(304, {"ETag": answer.mark})
        else:
            headers = {"Content-Type": answer.kind, "ETag": answer.mark}
            self._head(200, headers | {"Content-Length": str(len(answer.body))})
            if body:
                self.wfile.write(answer.body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (HEADERS | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: an open page, which asks every two seconds, would fill the terminal."""


def listening(answers: Report | Site, host: str, port: int) -> Server:
    """Return the server; raise UserError if it cannot listen on the address."""
    try:
        return Server(answers, host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"--port {port}: in use; give another one, or --port 0 for any that is free") from None
        raise UserError(f"--host {host} --port {port}: {error.strerror}; give another address") from None
    except OverflowError:
        raise UserError(f"--port {port}: no such port") from None


def state_of(folder: Path) -> str:
    """Return a mark that changes when a run below the folder writes something or is killed."""
    digest = hashlib.blake2b(digest_size=12)
    for run in list_runs(folder, []):
        for name in SHOWN:
            try:
                state = os.stat(run.path / name)
                words = f"{run.path / name} {state.st_mtime_ns} {state.st_size} {is_written(run.path)}\n"
            except (UserError, OSError):  # removed or unreadable, which the report itself mentions
                continue
            digest.update(words.encode("utf-8", "surrogateescape"))
    return f'"{digest.hexdigest()}"'  # in quotes, as an ETag has to be
