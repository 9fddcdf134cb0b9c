"""Base of all loggers of records: a failure ends the logger in one line and does not stop the run."""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import threading
import urllib.request
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from seqtrain.files.atomic import write_text
from seqtrain.files.checked import check_png, read_checked
from seqtrain.runs import measures
from seqtrain.runs.shown import Confusion, Table
from seqtrain.runs.summary import Summary
from seqtrain.terminal import tell as say

MAX_ANSWER_SECONDS = 2.0  # that a host may take
MAX_CALL_SECONDS = 60.0  # that one call of a logger may take

MAX_IDENTITY_BYTES = 100

Record = dict[str, Any]
"""One point: `step`, `epoch`, `tokens`, `seconds`, `record` (its place in metrics.jsonl) and whatever was measured."""

NO_METRICS = ("step", "record", "time")  # of a record: its place, and when it was recorded
MAX_MODEL_SECONDS = 600.0  # that sending a model may take
SHOWN_IN_SUMMARY = (
    *("status", "reason", "metrics", "best", "baselines", "parameters", "steps", "tokens", "flops", "seconds"),
    *("tokens_per_second", "padding"),
)
"""Entries of summary.json that loggers show."""


class RunLogger(Logger):
    """A Lightning logger that also takes texts and images. After a failure or timeout it is left out, with one line."""

    shows_images: ClassVar[bool] = True  # else none is drawn for it

    def __init__(self, label: str, directory: Path) -> None:
        super().__init__()
        self.label = label
        self.broken = False
        self.trouble = f"{label} failed and is left out from here on"  # message after a failure, before the reason
        self._directory = directory
        self._time: float | None = None  # of the newest record, in seconds since 1970
        self._worker = Worker()

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._directory.name

    @property
    def version(self) -> str:
        """Empty: a run directory is one version."""
        return ""

    @property
    def save_dir(self) -> str:
        """Path of the run directory."""
        return str(self._directory)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: each logger got the config when it was made."""

    @rank_zero_only
    def log_metrics(self, metrics: Record, step: int | None = None) -> None:  # type: ignore[override]
        """Log one point. Its time is also that of everything logged until the next point."""
        recorded = metrics.get("time")
        if isinstance(recorded, float):
            self._time = recorded
        self._send(lambda: self._metrics(metrics, step or 0))

    @rank_zero_only
    def log_text(self, name: str, text: str, step: int) -> None:
        """Log a text, such as a sample, after `step` steps."""
        self._send(lambda: self._text(name, text, step))

    @rank_zero_only
    def log_table(self, name: str, table: Table, step: int) -> None:
        """Log a table, such as samples by columns, after `step` steps."""
        self._send(lambda: self._table(name, table, step))

    @rank_zero_only
    def log_confusion(self, name: str, confusion: Confusion, step: int) -> None:
        """Log confusion counts to loggers that draw them; the others get a picture."""
        self._send(lambda: self._confusion(name, confusion, step))

    @rank_zero_only
    def log_image(self, name: str, path: Path, step: int) -> None:
        """Log a PNG file, such as a plot, after `step` steps."""

        def send() -> None:
            check_png(path)  # `seqtrain sync` sends files of the run, which may be untrusted
            self._image(name, path, step)

        self._send(send)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Do nothing: Lightning calls this after each of its loops; the attempt calls `end`."""

    @rank_zero_only
    def end(self, summary: Summary) -> None:
        """End the logger with the final figures of the run, including its `status`."""
        known = summary.to_plain()
        figures = {name: known[name] for name in SHOWN_IN_SUMMARY if name in known}
        self._send(lambda: self._end(figures), seconds=MAX_CALL_SECONDS + self.model_seconds)

    def begin_anew(self) -> None:
        """Start a new record in the logger; that of earlier attempts is left as it is."""
        self._send(self._forget)

    def _send(self, action: Callable[[], None], seconds: float | None = None) -> None:
        if self.broken:
            return
        error = self._worker.run(action, seconds)  # no fault of a third party may stop the training
        if error is not None:
            self.broken = True
            say(f"{self.trouble}: {' '.join(str(error).split())}")

    def _forget(self) -> None:
        """Remove the files by which the logger would continue its record."""

    @property
    def model_seconds(self) -> float:
        """Seconds that the end may take in addition, if a model is sent then."""
        return 0.0

    def _table(self, name: str, table: Table, step: int) -> None:
        """Do nothing: not every logger has tables."""

    def _confusion(self, name: str, confusion: Confusion, step: int) -> None:
        """Do nothing: not every logger draws."""

    @abstractmethod
    def _metrics(self, metrics: Record, step: int) -> None: ...

    @abstractmethod
    def _text(self, name: str, text: str, step: int) -> None: ...

    @abstractmethod
    def _image(self, name: str, path: Path, step: int) -> None: ...

    @abstractmethod
    def _end(self, figures: dict[str, Any]) -> None: ...


class Worker:
    """A thread that runs one action after the other. An action that never ends is abandoned."""

    def __init__(self) -> None:
        # Each action has its own queue for the answer: a late answer is never read.
        self._actions: queue.SimpleQueue[tuple[Callable[[], None], queue.SimpleQueue[BaseException | None]]]
        self._actions = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, action: Callable[[], None], seconds: float | None = None) -> BaseException | None:
        """Run the action. Return its exception, None, or TimeoutError after `seconds` (default MAX_CALL_SECONDS)."""
        limit = MAX_CALL_SECONDS if seconds is None else seconds
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)  # so that it does not delay leaving
            self._thread.start()
        answer: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._actions.put((action, answer))
        try:
            return answer.get(timeout=limit)
        except queue.Empty:
            return TimeoutError(f"no answer for {limit:g} s")

    def _work(self) -> None:
        while True:
            action, answer = self._actions.get()
            try:
                action()
                answer.put(None)
            except BaseException as error:
                answer.put(error)


class Guarded(RunLogger):
    """A logger of Lightning's or of the user's own, guarded against failures. It gets numbers only."""

    shows_images = False

    def __init__(self, logger: Logger, directory: Path) -> None:
        super().__init__(type(logger).__name__, directory)
        self._logger = logger

    def _metrics(self, metrics: Record, step: int) -> None:
        self._logger.log_metrics(metrics, step)

    def _text(self, name: str, text: str, step: int) -> None:
        """Do nothing: not every logger takes text."""

    def _image(self, name: str, path: Path, step: int) -> None:
        """Do nothing."""

    def _end(self, figures: dict[str, Any]) -> None:
        self._logger.finalize("success" if went_well(figures) else "failed")


def guarded(logger: Logger, directory: Path) -> RunLogger:
    """Return the logger itself if it is a RunLogger, else wrapped as one."""
    return logger if isinstance(logger, RunLogger) else Guarded(logger, directory)


def went_well(figures: dict[str, Any]) -> bool:
    """Return True if a run finished or was pruned by its sweep."""
    return figures.get("status") in ("finished", "pruned")


def direction(name: str, summary: Summary) -> Literal["min", "max"] | None:
    """Return the better direction of a metric such as `validation/loss`, by the run's summary; None if it has none."""
    split, _, metric = name.rpartition("/")
    if not split:  # `lr`, `tokens`: nothing that a task measures
        return None
    return measures.better(summary, metric)


def answers(url: str) -> bool:
    """Return True if the host of `url`, or its proxy, accepts a connection in time; False if the URL names no host."""
    try:
        address = _host(url)
    except ValueError:  # `http://[`, or a port that is not a number; also in the proxy's URL
        return False
    answered = threading.Event()

    def knock() -> None:
        with contextlib.suppress(OSError, UnicodeError), socket.create_connection(address, MAX_ANSWER_SECONDS):
            answered.set()

    thread = threading.Thread(target=knock, daemon=True)  # a name server that is silent obeys no timeout
    thread.start()
    thread.join(MAX_ANSWER_SECONDS)
    return answered.is_set()


def _host(url: str) -> tuple[str, int]:
    """Return host and port that a request to `url` connects to first. Raises ValueError for an invalid URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        if "://" not in proxy:  # as `proxy:3128`, which urlsplit would take for a scheme and a path
            proxy = f"http://{proxy}"
        parts = urlsplit(proxy)
    default_ports = {"https": 443}
    return parts.hostname or "", parts.port or default_ports.get(parts.scheme, 80)


def load_or_make_identity(path: Path, make: Callable[[], str]) -> str:
    """Return the identity that an earlier attempt saved in `path`, or a new one. Raises ValueError if it is invalid."""
    if not path.exists():
        write_text(path, make())
    identity = read_checked(path, MAX_IDENTITY_BYTES).decode("utf-8", "replace").strip()
    if not re.fullmatch(r"[\w-]{1,64}", identity, re.ASCII):  # it becomes part of paths and addresses
        raise ValueError(f"{path} holds no identity; delete it to begin a new record")
    return identity
