"""`seqtrain serve`: the report on a folder of runs, made anew as they go on, on an address of this machine."""

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

from seqtrain.cli.arguments import Parser, bounded, say
from seqtrain.compare.entries import read
from seqtrain.compare.page.report import page
from seqtrain.compare.table import not_run
from seqtrain.compare.verdict import conclusions
from seqtrain.config.ranges import Range
from seqtrain.errors import UserError
from seqtrain.runs.directory import CONFIG, METRICS, SUMMARY
from seqtrain.runs.listing import is_written, list_runs

WAITING = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="3">
<title>seqtrain</title><p>There is no run yet that can be shown; this page looks again every 3 seconds.</p></html>"""

# Times as long as a report took to make it stays as it is: the machine is there for the runs.
REST_FACTOR = 3.0

HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def main(argv: list[str]) -> int:
    """The command; it ends when it is interrupted."""
    parser = Parser(
        "serve",
        "Serves the report that `seqtrain compare DIR --html FILE` writes, live while runs go on.\n"
        "Only this machine can reach it; from elsewhere use `ssh -L 8321:127.0.0.1:8321 MACHINE`.",
        "seqtrain serve outputs",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder of runs and sweeps")
    parser.add_argument("--port", type=bounded(Range(0, 65535, whole=True)), default=8321)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine alone)")
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        raise UserError(f"{options.folder}: no such folder; name one that holds runs or sweeps")
    with listening(Report(options.folder), options.host, options.port) as server:
        say(f"serving {options.folder} at {server.address}; Ctrl-C ends it")
        if not server.private:
            say(f"whoever reaches {options.host} reads it: there is no password")
        server.serve_forever()
    return 0


@dataclass
class Report:
    """The newest report on the runs below a folder."""

    folder: Path
    text: bytes = WAITING.encode()
    mark: str = '"none"'  # what it was made of
    rest: float = 10.0  # seconds that it stays as it is at least
    trouble: str = ""  # why there is none, or no newer one
    _seen: str = ""
    _until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def newest(self) -> tuple[bytes, str]:
        """The page and its mark; made anew where the runs have changed since and the last one has stood for a while."""
        # Several browsers may ask at once; one report is enough for all of them.
        with self._lock:
            if time.monotonic() >= self._until:
                mark = state_of(self.folder)
                if mark != self._seen:
                    self._renew(mark)
            return self.text, self.mark

    def _renew(self, mark: str) -> None:
        start = time.monotonic()
        self._make(mark)
        took = time.monotonic() - start
        self._seen = mark  # also where it failed: it is tried again when a run has changed
        self._until = time.monotonic() + max(self.rest, REST_FACTOR * took)

    def _make(self, mark: str) -> None:
        try:
            missing: list[str] = []
            results = conclusions(read([self.folder], missing))
            missing += not_run(self._sweeps())
            text = page(results, title=str(self.folder), missing=missing, mark=mark)
        except (UserError, OSError) as error:  # the last one stays: a run may be half written, or being removed
            if str(error) != self.trouble:
                say(f"no newer report: {error}")
            self.trouble = str(error)
        else:
            self.text, self.mark, self.trouble = text.encode(), mark, ""

    def _sweeps(self) -> list[Path]:
        return sorted({self.folder, *(run.path.parent for run in list_runs(self.folder, []))})


def state_of(folder: Path) -> str:
    """A mark that changes with what any run below the folder has recorded, and when one is killed."""
    digest = hashlib.blake2b(digest_size=12)
    for run in list_runs(folder, []):
        for name in (CONFIG, METRICS, SUMMARY):
            try:
                state = os.stat(run.path / name)
                words = f"{run.path / name} {state.st_mtime_ns} {state.st_size} {is_written(run.path)}\n"
            except (UserError, OSError):  # removed, or not readable: the report says so
                continue
            digest.update(words.encode("utf-8", "surrogateescape"))
    return f'"{digest.hexdigest()}"'  # in quotes, as an ETag has to be


class Server(socketserver.ThreadingTCPServer):
    """Gives one report and nothing else of the disk; http.server's own would ask a name server for our name."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, report: Report, host: str, port: int) -> None:
        self.report = report
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        bound, self.port = map(str, self.server_address[:2])
        self.private = ipaddress.ip_address(bound).is_loopback
        self.host = f"[{bound}]" if ":" in bound else bound

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{self.host}:{self.port}/"

    def knows(self, host: str) -> bool:
        """Whether a request for this host is for us: a stranger's page may let a name of its own lead here."""
        return not self.private or host.removesuffix(f":{self.port}") in ("localhost", self.host)


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of /."""

    server: Server  # type: ignore[assignment]
    timeout = 30  # seconds that a silent connection may hold a thread

    def do_GET(self) -> None:
        """The page."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Whether there is a newer one: its ETag."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if not self.server.knows(self.headers.get("Host", "")):
            self.send_error(421, "This address serves its own machine only")
        elif self.path.partition("?")[0] != "/":
            self.send_error(404)
        else:
            text, mark = self.server.report.newest()
            self.send_response(200)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("ETag", mark)
            self.end_headers()
            if body:
                self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a page that asks every two seconds would fill the terminal."""


def listening(report: Report, host: str, port: int) -> Server:
    """The server; UserError where the address cannot be had."""
    try:
        return Server(report, host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"--port {port}: in use; give another one, or --port 0 for any that is free") from None
        raise UserError(f"--host {host} --port {port}: {error.strerror}; give another address") from None
    except OverflowError:
        raise UserError(f"--port {port}: no such port") from None
