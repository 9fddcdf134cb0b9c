"""Base class of the loggers. A logger that fails logs one line and is disabled; the run continues."""

from __future__ import annotations

import contextlib
import math
import re
import ssl
import tempfile
import threading
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from pytorch_lightning import Trainer
from pytorch_lightning.loggers.logger import Logger, rank_zero_experiment
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from seqtrain.config.groups import GROUPS, option_name
from seqtrain.config.nodes import flat
from seqtrain.errors import Unavailable
from seqtrain.files.atomic import exists, write_text
from seqtrain.files.checked import check_png, read_checked
from seqtrain.runs.checkpoint import BEST
from seqtrain.runs.directory import Run
from seqtrain.runs.shown import Table
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.folder import member_of
from seqtrain.terminal import tell

MAX_ANSWER_SECONDS = 3.0  # for a host to answer
MAX_CALL_SECONDS = 60.0  # for one call of a logger
MAX_MODEL_SECONDS = 600.0  # for sending a model
MAX_IDENTITY_BYTES = 100

Record = dict[str, Any]
"""One point: `step`, `epoch`, `tokens`, `seconds`, `record` (its position in metrics.jsonl) and the measured values."""

NO_METRICS = ("step", "record", "time")  # entries of a record: its position, and the time of recording
NO_HYPERPARAMETERS = ("logger", "callbacks", "run_dir", "dry_run")  # how a run is observed and where it is stored
SHOWN_IN_SUMMARY = (
    *("status", "reason", "metrics", "best", "baselines", "parameters", "steps", "tokens", "flops", "seconds"),
    *("tokens_per_second", "padding"),
)
"""Entries of summary.json that loggers show."""
FIRST_WORDS = {"metrics": "final", "best": "best", "baselines": "baselines"}
"""Prefixes of the summary's values among metrics, since metrics measured during training have the same names."""


class RunLogger(Logger):
    """A Lightning logger that also accepts texts and images. A failure or timeout disables it, with one log line.

    A subclass implements `_metrics` and `_end`, and what its service supports of `_open`, `_text`, `_table`, `_image`,
    `_model` and `_forget`, which do nothing here. The public methods guard these calls and are not overridden.
    """

    shows_images: ClassVar[bool] = True  # False: none are drawn for it

    def __init__(self, label: str, directory: Path, *, log_model: bool = False) -> None:
        super().__init__()
        self.label = label
        self.broken = False
        self.trouble = f"{label} failed and is disabled from here on"  # message after a failure, before the reason
        self._directory = directory
        self._time: float | None = None  # of the newest record, in seconds since 1970
        self._log_model = log_model
        self._model_seconds = MAX_MODEL_SECONDS if log_model else 0.0

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

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """Object of the service. Lightning requests it before the first step, so that no step waits for it."""
        opened: list[Any] = []
        self._send(lambda: opened.append(self._open()))
        return opened[0] if opened else None

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: each logger received the config when it was created."""

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
        """Send the final values of the run, including its `status`, and the model if `log_model` is set; then close."""
        known = summary.to_plain()
        figures = {name: known[name] for name in SHOWN_IN_SUMMARY if name in known}

        def send() -> None:
            if self._log_model and went_well(figures) and exists(Run(self._directory).path / "checkpoints" / BEST):
                with _exported(self._directory) as folder:
                    self._model(folder, figures)
            self._end(figures)

        self._send(send, seconds=MAX_CALL_SECONDS + self._model_seconds)

    def begin_anew(self) -> None:
        """Start a new record in the service; the record of earlier attempts does not change."""
        self._send(self._forget)

    def _send(self, action: Callable[[], None], seconds: float | None = None) -> None:
        if self.broken:
            return
        error = error_within(MAX_CALL_SECONDS if seconds is None else seconds, action)
        if error is not None:  # a failure of a third party must not stop the training
            self.broken = True
            tell(f"{self.trouble}: {' '.join(str(error).split())}")

    def _open(self) -> Any:
        """Return the object of the service, created at the first call."""

    def _forget(self) -> None:
        """Remove the files that make the logger continue its record."""

    def _text(self, name: str, text: str, step: int) -> None:
        """Do nothing: not every logger supports text."""

    def _table(self, name: str, table: Table, step: int) -> None:
        """Do nothing: not every logger supports tables."""

    def _image(self, name: str, path: Path, step: int) -> None:
        """Do nothing: not every logger supports images."""

    def _model(self, folder: Path, figures: dict[str, Any]) -> None:
        """Do nothing: not every logger stores models. `folder`: the export of the run's best checkpoint."""

    @abstractmethod
    def _metrics(self, metrics: Record, step: int) -> None:
        """Send one point, which was recorded after `step` steps."""

    @abstractmethod
    def _end(self, figures: dict[str, Any]) -> None:
        """Send the final values of the run, and close the record. `figures`: entries of SHOWN_IN_SUMMARY."""


class Guarded(RunLogger):
    """Wrapper that guards a logger of Lightning or of the user against failures. It sends only numbers."""

    shows_images = False

    def __init__(self, logger: Logger, directory: Path) -> None:
        super().__init__(type(logger).__name__, directory)
        self._logger = logger

    def _metrics(self, metrics: Record, step: int) -> None:
        self._logger.log_metrics(metrics, step)

    def _end(self, figures: dict[str, Any]) -> None:
        self._logger.finalize("success" if went_well(figures) else "failed")


def guarded(logger: Logger, directory: Path) -> RunLogger:
    """Return the logger itself if it is a RunLogger, else wrapped as one."""
    return logger if isinstance(logger, RunLogger) else Guarded(logger, directory)


def went_well(figures: dict[str, Any]) -> bool:
    """Return True if a run finished or was pruned by its sweep."""
    return figures.get("status") in ("finished", "pruned")


def error_within(seconds: float, action: Callable[[], Any]) -> BaseException | None:
    """Run an action. Return its exception or None; after `seconds`, abandon it and return TimeoutError."""
    ended: list[BaseException | None] = []

    def work() -> None:
        try:
            action()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)  # so that it does not delay the end of the process
    thread.start()
    thread.join(seconds)
    return ended[0] if ended else TimeoutError(f"no answer for {seconds:g} s")


def answers(url: str) -> bool:
    """Return True if a server answers at `url`, through the proxy of the environment if there is one."""

    def ask() -> None:
        urllib.request.build_opener().open(url, timeout=MAX_ANSWER_SECONDS).close()

    error = error_within(MAX_ANSWER_SECONDS, ask)  # the timeout of urllib does not cover name servers
    refused = isinstance(error, urllib.error.HTTPError)
    # A server with the user's own certificate answers, too: the certificate is checked when the logger connects.
    return error is None or refused or isinstance(getattr(error, "reason", None), ssl.SSLError)


@contextlib.contextmanager
def package(name: str) -> Iterator[None]:
    """Raise UserError for a failed import of a logger's package."""
    try:
        yield
    except ImportError:
        raise Unavailable(f"logger={name} needs a package: pip install 'seqtrain[{name}]'") from None
    except Exception as error:  # caused by the environment: MLflow needs a home folder
        raise Unavailable(f"logger={name}: its package cannot be imported: {' '.join(str(error).split())}") from None


def load_or_make_identity(path: Path, make: Callable[[], str]) -> str:
    """Return the identity that an earlier attempt saved in `path`, or a new one. Raises ValueError if it is invalid."""
    if not path.exists():
        write_text(path, make())
    identity = read_checked(path, MAX_IDENTITY_BYTES).decode("utf-8", "replace").strip()
    if not re.fullmatch(r"[\w-]{1,64}", identity, re.ASCII):  # it becomes part of paths and addresses
        raise ValueError(f"{path} does not contain a valid identity; delete it to start a new record")
    return identity


@contextlib.contextmanager
def _exported(directory: Path) -> Iterator[Path]:
    """Yield a folder with the export of the run's best checkpoint, as `seqtrain export` writes it."""
    from seqtrain.inference.opened import open_run

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model"
        open_run(directory, "best").write_export(target)
        yield target


def chosen(config: dict[str, Any]) -> dict[str, str]:
    """Return the choice of each group of the config, such as `model: lstm`."""
    names = {}
    for group in GROUPS:
        node = config.get(group)
        # `seqtrain sync` reads the config of a run, which may be untrusted.
        if isinstance(node, dict) and isinstance(node.get("_target_"), str):
            names[group] = option_name(node["_target_"])
    return names


def hyperparameters(config: dict[str, Any]) -> dict[str, str | bool | int | float]:
    """Return the choice of each group and every option that defines the run, by dotted path; other values as text."""
    found: dict[str, str | bool | int | float] = dict(chosen(config))
    for path, value in flat(config):
        words = path.split(".")
        # The names of options replace `_target_`; recommendations of a YAML have already become values.
        if words[0] in NO_HYPERPARAMETERS or any(word.startswith("_") for word in words):
            continue
        found[path] = value if isinstance(value, str | bool | int | float) else str(value)
    return found


def figures_as_metrics(figures: dict[str, Any]) -> dict[str, float]:
    """Return finite numbers of the summary as metrics: final/validation/loss, best/step, run/parameters/total."""
    found = {}
    for path, value in flat(figures):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            first, _, rest = path.partition(".")
            name = f"{FIRST_WORDS[first]}.{rest}" if first in FIRST_WORDS else f"run.{path}"
            found[name.replace(".", "/")] = float(value)
    return found


def log_picture(trainer: Trainer, name: str, what: str, draw: Callable[[], Path | None]) -> None:
    """Log the PNG file that `draw` writes, if any, as `name`.

    Args:
        trainer: Trainer whose run loggers receive the picture.
        name: Name of the picture in the loggers.
        what: Noun for the message if drawing fails.
        draw: Writes the file and returns its path, or None.
    """
    try:
        path = draw()
    except Exception as error:  # any error of matplotlib or in the data
        tell(f"{what} could not be drawn: {error}")
        return
    if path is None:
        return
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_image(name, path, trainer.global_step)


def preformatted(text: str) -> str:
    """Return Markdown that shows `text` verbatim: text indented by four spaces is code."""
    return "".join(f"    {line}\n" for line in text.splitlines())


def name_and_sweep(directory: Path) -> tuple[str, str | None]:
    """Return the name of a run in a dashboard, and that of its sweep if it is a trial."""
    member = member_of(directory)
    return (directory.name, None) if member is None else (member.label or directory.name, member.sweep)
