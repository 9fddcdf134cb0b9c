"""Where records go beside metrics.jsonl: Weights & Biases, TensorBoard, MLflow. A sink may fail; the run goes on."""

from __future__ import annotations

import contextlib
import html
import logging
import netrc
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pytorch_lightning.loggers.logger import rank_zero_experiment

from seqtrain.callbacks.base_sink import Sink, answers, remembered, say
from seqtrain.callbacks.mlflow_sink import MLflowSink
from seqtrain.faults import Fault
from seqtrain.provenance import mask_command

Mode = Literal["online", "offline", "disabled"]
START, FINISH = 10.0, 15.0  # seconds that W&B may take to begin online, and to send the rest at the end


def wandb(
    *,
    project: str,
    entity: str | None,
    name: str | None,
    group: str | None,
    tags: list[str],
    mode: Literal["auto", "online", "offline"],
    directory: Path,
    config: dict[str, Any],
) -> Sink:
    """Weights & Biases for the run in `directory`, with its files there; `config` is masked already.

    With `mode=auto`, WANDB_MODE decides; without it, a run is online if there is an API key and the host answers.
    Never asks, never waits for more than a few seconds. Fault for `mode=online` that cannot be.
    """
    options = {"project": project, "entity": entity, "name": name or directory.name, "group": group, "tags": tags}
    return _Wandb(directory, _wandb_mode(mode), {**options, "config": config})


def tensorboard(*, directory: Path, config: dict[str, Any]) -> Sink:
    """TensorBoard event files in `directory`/tensorboard; Fault when TensorBoard is not installed."""
    with _package("tensorboard"):
        import tensorboard  # noqa: F401
        import torch.utils.tensorboard  # noqa: F401 - here, so that no step waits for it
    return _TensorBoard(directory, config)


def mlflow(*, experiment: str, tracking_uri: str | None, directory: Path, config: dict[str, Any]) -> Sink:
    """MLflow at `tracking_uri`; null: MLFLOW_TRACKING_URI, else a sqlite file beside the run directories.

    Fault when MLflow is not installed, or a server does not answer.
    """
    with _package("mlflow"):
        import mlflow  # type: ignore[import-not-found]  # noqa: F401
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri and uri.startswith("http") and not answers(uri):
        raise Fault(f"logger.mlflow.tracking_uri={uri} does not answer: start the server or give another tracking_uri")
    return MLflowSink(directory, config, experiment, uri)


class _Wandb(Sink):
    def __init__(self, directory: Path, mode: Mode, options: dict[str, Any]) -> None:
        super().__init__("W&B", directory)
        self._mode: Mode = mode
        self._options = options
        self._run: Any = None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The W&B run; Lightning asks for it before the first step, so that no step waits for it."""
        self._send(self._open)
        return self._run

    def _open(self) -> Any:
        if self._run is None:
            self._run = self._begin()
            self._run.define_metric("tokens", hidden=True)
            self._run.define_metric("*", step_metric="tokens")
        return self._run

    def _begin(self) -> Any:
        import wandb as package

        try:
            return self._init(self._mode)
        except (package.Error, TimeoutError) as error:
            if self._mode != "online":
                raise
            say(f"W&B: offline, because going online failed: {' '.join(str(error).split())}")
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # W&B's own telemetry fails as well
            package.teardown()  # its service still holds the run's identity
            return self._init("offline")

    def _init(self, mode: Mode) -> Any:
        import wandb as package

        settings = package.Settings(silent=True, console="off", init_timeout=START, finish_timeout=FINISH)
        resume = "allow" if mode == "online" else None  # offline there is nothing to ask, and W&B would warn
        with _masked_arguments():
            return package.init(
                **self._options,
                dir=str(self._directory),
                id=remembered(self._directory / "wandb_id", lambda: secrets.token_hex(4)),
                mode=mode,
                resume=resume,
                reinit="create_new",
                settings=settings,
            )

    def _metrics(self, metrics: dict[str, float], step: int) -> None:
        self._open().log(metrics)  # no step: after a resume W&B would drop what it saw already

    def _text(self, name: str, text: str, step: int) -> None:
        import wandb as package

        self._open().log({name: package.Html(f"<pre>{html.escape(text)}</pre>", inject=False), "step": step})

    def _image(self, name: str, path: Path, step: int) -> None:
        import wandb as package

        self._open().log({name: package.Image(str(path)), "step": step})

    def _end(self, success: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if success else 1)
            self._run = None


class _TensorBoard(Sink):
    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        super().__init__("TensorBoard", directory)
        self._config = config
        self._writer: Any = None
        self._opened = False  # in this sitting

    def _open(self, step: int) -> Any:
        if self._writer is None:
            import yaml
            from torch.utils.tensorboard import SummaryWriter

            folder = self._directory / "tensorboard"
            purge = step if folder.exists() and not self._opened else None  # a resume: hides what it overwrites
            self._opened = True
            _put_first(sorted(folder.glob("events.out.tfevents.*")))
            self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=10)
            self._writer.add_text("config", _preformatted(yaml.safe_dump(self._config, sort_keys=False)), step)
        return self._writer

    def _metrics(self, metrics: dict[str, float], step: int) -> None:
        writer = self._open(step)
        for name, value in metrics.items():
            if name != "step":
                writer.add_scalar(name, value, step)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open(step).add_text(name, _preformatted(text), step)

    def _image(self, name: str, path: Path, step: int) -> None:
        from matplotlib.image import imread

        self._open(step).add_image(name, imread(path), step, dataformats="HWC")

    def _end(self, success: bool) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _put_first(files: list[Path]) -> None:
    """Lets event files sort before one that begins now: they are read by name, and the clock may have gone back."""
    if not files or int(files[-1].name.split(".")[3]) < int(time.time()):
        return
    for number, path in enumerate(files):
        words = path.name.split(".")
        path.rename(path.with_name(".".join([*words[:3], f"{number:010d}", *words[4:]])))


def _wandb_mode(mode: Literal["auto", "online", "offline"]) -> Mode:
    """What `mode` comes to here and now, said in one line where W&B will be offline."""
    wished = os.environ.get("WANDB_MODE", "auto") if mode == "auto" else mode
    if wished in ("offline", "dryrun"):
        return "offline"
    if wished == "disabled":
        return "disabled"
    problem = _wandb_problem()
    if problem is None:
        return "online"
    if mode == "online":
        raise Fault(f"logger.wandb.mode=online cannot be: {problem}; or use logger.wandb.mode=offline")
    say(f"W&B: offline, because there is {problem}")
    return "offline"


def _wandb_problem() -> str | None:
    """Why W&B cannot be online, with the remedy; None when it can."""
    import wandb as package

    settings = package.setup(package.Settings(silent=True)).settings
    host = urlsplit(settings.base_url).hostname or ""
    keys = (os.environ.get("WANDB_API_KEY"), os.environ.get("WANDB_IDENTITY_TOKEN_FILE"), settings.api_key)
    if not (any(keys) or _in_netrc(host)):
        return "no API key: `wandb login` gives one"
    return None if answers(settings.base_url) else f"no answer from {host}: check the network"


def _in_netrc(host: str) -> bool:
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        return netrc.netrc(str(path)).authenticators(host) is not None
    return False


@contextlib.contextmanager
def _package(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise Fault(f"logger={name} needs a package: pip install 'seqtrain[{name}]'") from None


@contextlib.contextmanager
def _masked_arguments() -> Iterator[None]:
    """Hides secrets of the command line, which W&B copies from sys.argv into its own record."""
    arguments = sys.argv
    sys.argv = mask_command(arguments)
    try:
        yield
    finally:
        sys.argv = arguments


def _preformatted(text: str) -> str:
    """Markdown that shows `text` as it is."""
    return "".join(f"    {line}\n" for line in text.splitlines())
