"""Where records go beside metrics.jsonl: Weights & Biases, TensorBoard, MLflow. A logger may fail; the run goes on."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import yaml

from seqtrain.errors import Unavailable
from seqtrain.sweeps.folder import member_of
from seqtrain.training.loggers.base import NO_METRICS, Record, RunLogger, answers
from seqtrain.training.loggers.mlflow_logger import MLflowRunLogger
from seqtrain.training.loggers.wandb_logger import Axis, WandbRunLogger, wandb_mode

AGENT_VARIABLES = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")  # what its sweep agent says to a run


def wandb(
    *,
    project: str,
    entity: str | None,
    name: str | None,
    group: str | None,
    job_type: str,
    tags: list[str],
    x: Axis,
    mode: Literal["auto", "online", "offline"],
    directory: Path,
    config: dict[str, Any],
) -> RunLogger:
    """Weights & Biases for the run in `directory`, with its files there; `config` is masked already.

    A trial of a sweep is grouped by the sweep and named by what differs. With `mode=auto`, WANDB_MODE decides; without
    it, a run is online if there is an API key and the host answers. Never asks, never waits for more than a few
    seconds. UserError for `mode=online` that cannot be.
    """
    member = member_of(directory)
    if member:
        _leave_agent()
        name, group = name or member.label, group or member.sweep
    options = {
        "project": project,
        "entity": entity,
        "name": name or directory.name,
        "group": group or None,
        "job_type": job_type,
        "tags": list(dict.fromkeys([*_class_names(config), *tags])),
        "config": config,
    }
    return WandbRunLogger(directory, wandb_mode(mode), options, x)


def _leave_agent() -> None:
    """Forgets W&B's sweep agent: it gave one identity, and each trial of a sweep of ours needs its own."""
    for name in AGENT_VARIABLES:
        os.environ.pop(name, None)


def _class_names(config: dict[str, Any]) -> list[str]:
    """What model and task the config names, as tags: LSTM, NextToken."""
    names = []
    for group in ("model", "task"):
        node = config.get(group)
        # `seqtrain sync` reads the config of a run that a stranger may have made.
        if isinstance(node, dict) and isinstance(node.get("_target_"), str):
            names.append(node["_target_"].rpartition(".")[2])
    return names


def tensorboard(*, directory: Path, config: dict[str, Any]) -> RunLogger:
    """TensorBoard event files in `directory`/tensorboard; UserError when TensorBoard is not installed."""
    with _package("tensorboard"):
        import tensorboard  # noqa: F401
        import torch.utils.tensorboard  # noqa: F401 - here, so that no step waits for it
    return _TensorBoard(directory, config)


def mlflow(*, experiment: str, tracking_uri: str | None, directory: Path, config: dict[str, Any]) -> RunLogger:
    """MLflow at `tracking_uri`; null: MLFLOW_TRACKING_URI, else a sqlite file beside the run directories.

    UserError when MLflow is not installed, or a server does not answer.
    """
    with _package("mlflow"):
        import mlflow  # type: ignore[import-not-found]  # noqa: F401
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri and uri.startswith("http") and not answers(uri):
        raise Unavailable(
            f"logger.mlflow.tracking_uri={uri} does not answer: start the server or give another tracking_uri"
        )
    return MLflowRunLogger(directory, config, experiment, uri)


class _TensorBoard(RunLogger):
    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        super().__init__("TensorBoard", directory)
        self._config = config
        self._writer: Any = None
        self._opened = False  # in this attempt

    def _open(self, step: int) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            folder, purge = self._directory / "tensorboard", None
            if folder.exists() and not self._opened:  # a resume: hides what it overwrites
                purge = step
            self._opened = True
            _put_first(sorted(folder.glob("events.out.tfevents.*")))
            self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=10)
            self._writer.add_text("config", _preformatted(_yaml(self._config)), step)
        return self._writer

    def _missing(self, records: list[Record]) -> list[Record]:
        """All: the folder is written anew, as event files can only grow."""
        for path in (self._directory / "tensorboard").glob("events.out.tfevents.*"):
            path.unlink()
        return records

    def _metrics(self, metrics: Record, step: int) -> None:
        writer = self._open(step)
        for name, value in metrics.items():
            if name not in NO_METRICS:
                writer.add_scalar(name, value, step)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open(step).add_text(name, _preformatted(text), step)

    def _image(self, name: str, path: Path, step: int) -> None:
        from matplotlib.image import imread

        self._open(step).add_image(name, imread(path), step, dataformats="HWC")

    def _end(self, figures: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.add_text("summary", _preformatted(_yaml(figures)), figures.get("steps", 0))
            self._writer.close()
            self._writer = None


def _put_first(files: list[Path]) -> None:
    """Lets event files sort before one that begins now: they are read by name, and the clock may have gone back."""
    if not files or int(files[-1].name.split(".")[3]) < int(time.time()):
        return
    for number, path in enumerate(files):
        words = path.name.split(".")  # events, out, tfevents, the time in seconds, the host, ...
        path.rename(path.with_name(".".join([*words[:3], f"{number:010d}", *words[4:]])))


@contextlib.contextmanager
def _package(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise Unavailable(f"logger={name} needs a package: pip install 'seqtrain[{name}]'") from None
    except Exception as error:  # what it finds in the environment: MLflow does not begin where there is no home folder
        raise Unavailable(f"logger={name}: its package cannot be imported: {' '.join(str(error).split())}") from None


def _yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _preformatted(text: str) -> str:
    """Markdown that shows `text` as it is: indented by four spaces it is taken for code."""
    return "".join(f"    {line}\n" for line in text.splitlines())
