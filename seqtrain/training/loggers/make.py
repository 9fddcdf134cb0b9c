"""Loggers beside metrics.jsonl: Weights & Biases, TensorBoard, MLflow. If a logger fails, the run continues."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from seqtrain.errors import Unavailable
from seqtrain.runs.provenance import PASSWORD
from seqtrain.sweeps.folder import member_of
from seqtrain.training.loggers.base import RunLogger, answers
from seqtrain.training.loggers.flattened import grouped
from seqtrain.training.loggers.mlflow_logger import MLflowRunLogger
from seqtrain.training.loggers.tensorboard_logger import TensorBoardRunLogger
from seqtrain.training.loggers.wandb_logger import Axis, WandbRunLogger, wandb_mode

AGENT_VARIABLES = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")  # set by its sweep agent


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
    log_model: bool,
    directory: Path,
    config: dict[str, Any],
) -> RunLogger:
    """Return the Weights & Biases logger of the run in `directory`.

    A trial of a sweep is grouped by the sweep and named by its differing options. It never prompts and waits at most a
    few seconds.

    Args:
        project: W&B project.
        entity: W&B user or team. None: the default.
        name: Name of the W&B run. None: that of the run directory, or the trial's label.
        group: Group of the W&B run. None: the sweep of a trial.
        job_type: W&B job type.
        tags: Tags beside the class names of model and task.
        x: Quantity on the x-axis of charts.
        mode: With `auto`, WANDB_MODE decides; without it, online if there is an API key and the host answers.
        log_model: Send the best checkpoint at the end, as an artifact.
        directory: The run directory; W&B's files lie there too.
        config: Config of the run, its secrets masked.

    Raises:
        UserError: `mode=online` is not possible.
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
        "config": grouped(config),
    }
    return WandbRunLogger(directory, wandb_mode(mode), options, x, log_model=log_model)


def _leave_agent() -> None:
    """Remove the variables of W&B's sweep agent: it gave one identity, but each trial of our sweep needs its own."""
    for name in AGENT_VARIABLES:
        os.environ.pop(name, None)


def _class_names(config: dict[str, Any]) -> list[str]:
    """Return the class names of model and task, as tags: LSTM, NextToken."""
    names = []
    for group in ("model", "task"):
        node = config.get(group)
        # `seqtrain sync` reads the config of a run, which may be untrusted.
        if isinstance(node, dict) and isinstance(node.get("_target_"), str):
            names.append(node["_target_"].rpartition(".")[2])
    return names


def tensorboard(*, directory: Path, config: dict[str, Any]) -> RunLogger:
    """Return a logger of event files in `directory`/tensorboard. Raises UserError if TensorBoard is not installed."""
    with _package("tensorboard"):
        import tensorboard  # noqa: F401
        import torch.utils.tensorboard  # noqa: F401 - here, so that no step waits for it
    return TensorBoardRunLogger(directory, config)


def mlflow(
    *, experiment: str, tracking_uri: str | None, log_model: bool, directory: Path, config: dict[str, Any]
) -> RunLogger:
    """Return the MLflow logger of the run in `directory`.

    Args:
        experiment: Name of the MLflow experiment.
        tracking_uri: Server. None: MLFLOW_TRACKING_URI, else a sqlite file beside the run directories.
        log_model: Send the best checkpoint at the end, as artifacts below `model`.
        directory: The run directory.
        config: Config of the run, its secrets masked.

    Raises:
        UserError: MLflow is not installed, or the server does not answer.
    """
    with _package("mlflow"):
        import mlflow  # type: ignore[import-not-found]  # noqa: F401
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri and uri.startswith("http") and not answers(uri):
        raise Unavailable(
            f"logger.mlflow.tracking_uri={PASSWORD.sub('', uri)} does not answer: start the server or give another one"
        )
    return MLflowRunLogger(directory, config, experiment, uri, log_model=log_model)


@contextlib.contextmanager
def _package(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise Unavailable(f"logger={name} needs a package: pip install 'seqtrain[{name}]'") from None
    except Exception as error:  # a fault of the environment: MLflow needs a home folder
        raise Unavailable(f"logger={name}: its package cannot be imported: {' '.join(str(error).split())}") from None
