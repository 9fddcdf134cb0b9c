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
from seqtrain.sweeps.folder import member_of
from seqtrain.training.loggers.base import NO_METRICS, Record, RunLogger, load_or_make_identity

MAX_BATCH, MAX_CHARACTERS = 100, 500  # parameters or tags that MLflow takes at a time, and characters of a value
ARTIFACTS = "mlflow_artifacts"  # beside the runs, where there is no server
STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "interrupted": "KILLED"}


class MLflowRunLogger(RunLogger):
    """One MLflow run, in the server at `uri` or in a sqlite file beside the run directories."""

    def __init__(self, directory: Path, config: dict[str, Any], experiment: str, uri: str | None) -> None:
        super().__init__("MLflow", directory)
        self._config = config
        self._experiment = experiment
        self._uri = uri
        self._client: Any = None
        self._id = ""

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The MLflow client; Lightning asks for it before the first step, so that no step waits for it."""
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
        params = [Param(key, str(value)[:MAX_CHARACTERS]) for key, value in flat(self._config)]
        for batch in _batches(params):
            client.log_batch(self._id, params=batch)
        return client

    def _create(self, client: Any, local: Path) -> str:
        """Makes the run, and its experiment where there is none of that name; gives the run's identity."""
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
        return client.create_run(number, tags=tags, run_name=name).info.run_id

    def _missing(self, records: list[Record]) -> list[Record]:
        client = self._open()
        known: dict[str, set[int]] = {}  # steps by metric
        for name in set().union(*records).difference(NO_METRICS):
            known[name] = {point.step for point in client.get_metric_history(self._id, name)}
        missing = []
        for record in records:
            kept = [name for name in record if name in NO_METRICS or record["step"] not in known[name]]
            if not set(kept).issubset(NO_METRICS):
                missing.append({name: record[name] for name in kept})
        return missing

    def _metrics(self, metrics: Record, step: int) -> None:
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        milliseconds, points = int(time.time() * 1000), []
        for name, value in metrics.items():
            if name not in NO_METRICS:
                points.append(Metric(name, float(value), milliseconds, step))
        self._open().log_batch(self._id, metrics=points)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open().log_text(self._id, text, f"{name}/step-{step:08d}.txt")

    def _image(self, name: str, path: Path, step: int) -> None:
        self._open().log_artifact(self._id, str(path), name)

    def _end(self, figures: dict[str, Any]) -> None:
        """Figures become tags: as metrics they would stand among those that were measured."""
        from mlflow.entities import RunTag  # type: ignore[import-not-found]

        if self._client is None:
            return
        tags = [RunTag(f"summary.{key}", str(value)[:MAX_CHARACTERS]) for key, value in flat(figures)]
        for batch in _batches(tags):
            self._client.log_batch(self._id, tags=batch)
        self._client.set_terminated(self._id, STATUS.get(figures.get("status", ""), "FAILED"))
        self._client = None


def _check_below(file: Path, artifacts: str | None, local: Path) -> None:
    """ValueError where a file that stood beside the run, perhaps a stranger's, has what is sent kept elsewhere."""
    if artifacts is None or not artifacts.startswith(f"{(local / ARTIFACTS).as_uri()}/") or ".." in artifacts:
        raise ValueError(f"{file} keeps what is sent in {artifacts}, not in {local / ARTIFACTS}; move the file away")


def _batches(entries: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(entries), MAX_BATCH):
        yield entries[start : start + MAX_BATCH]


def _identity_name(uri: str | None) -> str:
    """The file that keeps the run's identity in a store: one for each, as none knows the others'."""
    if not uri:
        return "mlflow_id"
    return f"mlflow_id-{hashlib.blake2b(uri.encode(), digest_size=4).hexdigest()}"
