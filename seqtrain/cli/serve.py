"""`seqtrain serve`: serve the report on a folder of runs on this machine, renewed as the runs progress."""

from __future__ import annotations

import errno
import ipaddress
import socket
import socketserver
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from seqtrain.cli.arguments import Parser, bounded, say
from seqtrain.cli.served import Answers, Site
from seqtrain.config.ranges import Range
from seqtrain.errors import UserError

HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}


def main(argv: list[str]) -> int:
    """Run the command until it is interrupted."""
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
    with listening(Site(options.folder), options.host, options.port) as server:
        say(f"serving {options.folder} at {server.address}; Ctrl-C ends it")
        if not server.private:
            say(f"whoever reaches {options.host} reads it: there is no password")
        server.serve_forever()
    return 0


class Server(socketserver.ThreadingTCPServer):
    """Server of the report, without access to the disk. http.server's own would query DNS for our name."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answers: Answers, host: str, port: int) -> None:
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
        """Return True if a request's host names this server. An untrusted page may point its own name here."""
        return not self.private or host.removesuffix(f":{self.port}") in ("localhost", self.host)


class Handler(BaseHTTPRequestHandler):
    """Handler for GET and HEAD requests of the server's few addresses."""

    server: Server  # type: ignore[assignment]
    timeout = 30  # seconds that a silent connection may hold a thread

    def do_GET(self) -> None:
        """Send a page, or its changes."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Send the headers of a page. Its ETag shows if there is a newer one."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if not self.server.knows(self.headers.get("Host", "")):
            self.send_error(421, "This address serves its own machine only")
            return
        path, _, query = self.path.partition("?")
        answer = self.server.answers.answer(path, query)
        if answer is None:
            self.send_error(404)
        elif answer.mark == self.headers.get("If-None-Match"):
            self._head(304, {"ETag": answer.mark})
        elif not answer.body:
            self._head(204, {"ETag": answer.mark})
        else:
            headers = {"Content-Type": answer.kind, "ETag": answer.mark}
            text = answer.body
            if "gzip" in self.headers.get("Accept-Encoding", ""):
                text, headers["Content-Encoding"] = answer.packed(), "gzip"
            self._head(200, headers | {"Content-Length": str(len(text))})
            if body:
                self.wfile.write(text)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (HEADERS | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a page that asks every two seconds would fill the terminal."""


def listening(answers: Answers, host: str, port: int) -> Server:
    """Return the server; raise UserError if it cannot listen on the address."""
    try:
        return Server(answers, host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"--port {port}: in use; give another one, or --port 0 for any that is free") from None
        raise UserError(f"--host {host} --port {port}: {error.strerror}; give another address") from None
    except OverflowError:
        raise UserError(f"--port {port}: no such port") from None
