"""What every sink of records shares: a failure ends the sink in one line, never the run."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import urllib.request
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

PATIENCE = 2.0  # seconds that a host has to answer


class Sink(Logger):
    """A Lightning logger that also takes texts and images; after its first failure it is left out, in one line."""

    def __init__(self, label: str, directory: Path) -> None:
        super().__init__()
        self._label = label
        self._directory = directory
        self._broken = False

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._directory.name

    @property
    def version(self) -> str:
        """Nothing: a run directory is one version."""
        return ""

    @property
    def save_dir(self) -> str:
        """The run directory."""
        return str(self._directory)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: each sink got the config when it was made."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:  # type: ignore[override]
        """One point: `step`, `epoch`, `tokens`, `seconds` and whatever was measured."""
        self._send(lambda: self._metrics(metrics, step or 0))

    @rank_zero_only
    def log_text(self, name: str, text: str, step: int) -> None:
        """A text, such as a sample, after `step` steps."""
        self._send(lambda: self._text(name, text, step))

    @rank_zero_only
    def log_image(self, name: str, path: Path, step: int) -> None:
        """A PNG file, such as a plot, after `step` steps."""
        self._send(lambda: self._image(name, path, step))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Ends the sink: `status` is `success` or another word."""
        self._send(lambda: self._end(status == "success"))

    def _send(self, action: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            action()
        except Exception as error:  # whatever a third party raises, it must not stop the training
            self._broken = True
            say(f"{self._label} failed and is left out from here on: {' '.join(str(error).split())}")

    @abstractmethod
    def _metrics(self, metrics: dict[str, float], step: int) -> None: ...

    @abstractmethod
    def _text(self, name: str, text: str, step: int) -> None: ...

    @abstractmethod
    def _image(self, name: str, path: Path, step: int) -> None: ...

    @abstractmethod
    def _end(self, success: bool) -> None: ...


def answers(url: str) -> bool:
    """Whether the host of `url`, or the proxy on the way to it, takes a connection in time."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(parts.scheme)
    if proxy:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    answered = threading.Event()

    def knock() -> None:
        with contextlib.suppress(OSError), socket.create_connection(address, PATIENCE):
            answered.set()

    thread = threading.Thread(target=knock, daemon=True)  # a name server that is silent obeys no timeout
    thread.start()
    thread.join(PATIENCE)
    return answered.is_set()


def remembered(path: Path, make: Callable[[], str]) -> str:
    """The identity that an earlier sitting of this run left in `path`, or a new one."""
    if not path.exists():
        path.write_text(make())
    return path.read_text().strip()


def say(line: str) -> None:
    """One line on standard error, so that standard output stays for results."""
    print(line, file=sys.stderr, flush=True)
