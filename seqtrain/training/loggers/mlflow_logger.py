"""MLflow as a logger of records."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import rank_zero_experiment

from seqtrain.config.nodes import flat
from seqtrain.files.checked import open_checked
from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import member_of
from seqtrain.training.loggers.base import (
    MAX_MODEL_SECONDS,
    NO_METRICS,
    Record,
    RunLogger,
    load_or_make_identity,
    went_well,
)
from seqtrain.training.loggers.flattened import chosen, figures_as_metrics, words_of
from seqtrain.training.loggers.model import exported, has_best

MAX_BATCH, MAX_CHARACTERS = 100, 500  # parameters or tags that MLflow takes at a time, and characters of a value
ARTIFACTS = "mlflow_artifacts"  # beside the runs, where there is no server
STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "interrupted": "KILLED"}


class MLflowRunLogger(RunLogger):
    """One MLflow run, in the server at `uri` or in a sqlite file beside the run directories."""

    def __init__(
        self, directory: Path, config: dict[str, Any], experiment: str, uri: str | None, *, log_model: bool = False
    ) -> None:
        super().__init__("MLflow", directory)
        self._log_model = log_model
        self._config = config
        self._experiment = experiment
        self._uri = uri
        self._client: Any = None
        self._id = ""

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The MLflow client. Lightning asks for it before the first step, so that no step waits for it."""
        self._send(self._open)
        return self._client

    def _open(self) -> Any:
        if self._client is None:
            self._client = self._begin()
        return self._client

    def _begin(self) -> Any:
        from mlflow import MlflowClient  # type: ignore[import-not-found]
        from mlflow.entities import Param  # type: ignore[import-not-found]

        for chatty in ("mlflow", "alembic"):
            logging.getLogger(chatty).setLevel(logging.WARNING)  # they report the making of each table
        local = self._directory.resolve().parent
        file = local / "mlflow.db"
        stood_before = self._uri is None and os.path.lexists(file)
        if stood_before:
            open_checked(file).close()  # UserError for a link or a pipe, which sqlite would follow or wait for
        client = MlflowClient(self._uri or f"sqlite:///{file}")
        identity = self._directory / _identity_name(self._uri)
        resumes = identity.exists()
        self._id = load_or_make_identity(identity, lambda: self._create(client, local))
        if stood_before:
            _check_below(file, client.get_run(self._id).info.artifact_uri, local)
        if resumes:
            client.update_run(self._id, status="RUNNING")
            return client
        options = {**chosen(self._config), **dict(flat(self._config))}
        params = [Param(key, str(value)[:MAX_CHARACTERS]) for key, value in options.items()]
        for batch in _batches(params):
            client.log_batch(self._id, params=batch)
        return client

    def _create(self, client: Any, local: Path) -> str:
        """Create the run, and the experiment if it does not exist; return the run's identity."""
        experiment = client.get_experiment_by_name(self._experiment)
        if experiment is not None:
            number = experiment.experiment_id
        else:
            artifacts = None
            if not self._uri:  # else MLflow would put them into the working folder
                artifacts = (local / ARTIFACTS).as_uri()
            number = client.create_experiment(self._experiment, artifacts)
        name, tags = self._directory.name, {}
        member = member_of(self._directory)
        if member:
            name, tags = member.label or name, {"sweep": member.sweep}
        # Known for `seqtrain sync`. During training there is no record yet, and MLflow uses the current time.
        start = _milliseconds(_began(self._directory))
        return client.create_run(number, start_time=start, tags=tags, run_name=name).info.run_id

    def _forget(self) -> None:
        (self._directory / _identity_name(self._uri)).unlink(missing_ok=True)

    def _metrics(self, metrics: Record, step: int) -> None:
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        milliseconds, points = _milliseconds(self._time) or _now(), []
        for name, value in metrics.items():
            if name not in NO_METRICS:
                points.append(Metric(name, float(value), milliseconds, step))
        self._open().log_batch(self._id, metrics=points)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open().log_text(self._id, text, f"{name}/step-{step:08d}.txt")

    def _image(self, name: str, path: Path, step: int) -> None:
        self._open().log_artifact(self._id, str(path), name)

    @property
    def model_seconds(self) -> float:
        return MAX_MODEL_SECONDS if self._log_model else 0.0

    def _end(self, figures: dict[str, Any]) -> None:
        """Log the numbers of the summary as metrics, under their own names, and its texts as tags."""
        from mlflow.entities import Metric, RunTag  # type: ignore[import-not-found]

        if self._client is None:
            return
        # Not the time of sending: that may be weeks later, and sending again must give the same point.
        ended = _milliseconds(_last_recorded(self._directory)) or _now()
        step = figures.get("steps", 0)
        metrics = [Metric(name, value, ended, step) for name, value in figures_as_metrics(figures).items()]
        for batch in _batches(metrics):
            self._client.log_batch(self._id, metrics=batch)
        tags = [RunTag(f"summary.{key}", value[:MAX_CHARACTERS]) for key, value in words_of(figures)]
        for batch in _batches(tags):
            self._client.log_batch(self._id, tags=batch)
        if self._log_model and went_well(figures) and has_best(self._directory):
            with exported(self._directory) as folder:
                self._client.log_artifacts(self._id, str(folder), "model")
        self._client.set_terminated(self._id, STATUS.get(figures.get("status", ""), "FAILED"), end_time=ended)
        self._client = None


def _began(directory: Path) -> float | None:
    """Return the time at which the training of a run began, by its first record with a time; None if there is none."""
    for record in Run(directory).records():
        if isinstance(record.get("time"), float):
            return record["time"] - record.get("seconds", 0.0)
    return None


def _last_recorded(directory: Path) -> float | None:
    """Return the time of the last record of a run; None if no record has one."""
    times = [record["time"] for record in Run(directory).records() if isinstance(record.get("time"), float)]
    return max(times, default=None)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _now() -> int:
    return int(time.time() * 1000)


def _check_below(file: Path, artifacts: str | None, local: Path) -> None:
    """Raise ValueError if an existing, possibly untrusted file beside the run stores artifacts elsewhere."""
    if artifacts is None or not artifacts.startswith(f"{(local / ARTIFACTS).as_uri()}/") or ".." in artifacts:
        raise ValueError(f"{file} keeps what is sent in {artifacts}, not in {local / ARTIFACTS}; move the file away")


def _batches(entries: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(entries), MAX_BATCH):
        yield entries[start : start + MAX_BATCH]


def _identity_name(uri: str | None) -> str:
    """Return the name of the file with the run's identity in a store. Each store has its own identity."""
    if not uri:
        return "mlflow_id"
    return f"mlflow_id-{hashlib.blake2b(uri.encode(), digest_size=4).hexdigest()}"
