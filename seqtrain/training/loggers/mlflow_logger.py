"""MLflow as a logger of records."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import rank_zero_experiment

from seqtrain.config.nodes import flat
from seqtrain.files.checked import open_checked
from seqtrain.sweeps.folder import member_of
from seqtrain.training.loggers.base import NO_METRICS, Record, RunLogger, remembered

MOST, LONGEST = 100, 500  # parameters that one batch takes, characters that one value takes
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
        known = self._uri is None and os.path.lexists(file)
        if known:
            open_checked(file).close()  # UserError for a link or a pipe, which sqlite would follow or wait for
        client = MlflowClient(self._uri or f"sqlite:///{file}")
        identity = self._directory / _identity(self._uri)
        resumes = identity.exists()
        self._id = remembered(identity, lambda: self._create(client, local))
        if known:
            _check_below(file, client.get_run(self._id).info.artifact_uri, local)
        if resumes:
            client.update_run(self._id, status="RUNNING")
            return client
        params = [Param(key, str(value)[:LONGEST]) for key, value in flat(self._config)]
        for start in range(0, len(params), MOST):
            client.log_batch(self._id, params=params[start : start + MOST])
        return client

    def _create(self, client: Any, local: Path) -> str:
        known = client.get_experiment_by_name(self._experiment)
        artifacts = None if self._uri else (local / ARTIFACTS).as_uri()
        number = known.experiment_id if known else client.create_experiment(self._experiment, artifacts)
        member = member_of(self._directory)
        name, tags = (member.label, {"sweep": member.sweep}) if member else (self._directory.name, {})
        return client.create_run(number, tags=tags, run_name=name or self._directory.name).info.run_id

    def _missing(self, records: list[Record]) -> list[Record]:
        client = self._open()
        names = {name for record in records for name in record} - {*NO_METRICS}
        known = {(name, point.step) for name in names for point in client.get_metric_history(self._id, name)}
        parts = [
            {name: record[name] for name in record if name in NO_METRICS or (name, record["step"]) not in known}
            for record in records
        ]
        return [part for part in parts if part.keys() - {*NO_METRICS}]

    def _metrics(self, metrics: Record, step: int) -> None:
        self._log({name: value for name, value in metrics.items() if name not in NO_METRICS}, step)

    def _log(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        now = int(time.time() * 1000)
        points = [Metric(name, float(value), now, step) for name, value in values.items()]
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
        tags = [RunTag(f"summary.{key}", str(value)[:LONGEST]) for key, value in flat(figures)]
        for start in range(0, len(tags), MOST):
            self._client.log_batch(self._id, tags=tags[start : start + MOST])
        self._client.set_terminated(self._id, STATUS.get(figures.get("status", ""), "FAILED"))
        self._client = None


def _check_below(file: Path, artifacts: str | None, local: Path) -> None:
    """ValueError where a file that stood beside the run, perhaps a stranger's, has what is sent kept elsewhere."""
    if artifacts is None or not artifacts.startswith(f"{(local / ARTIFACTS).as_uri()}/") or ".." in artifacts:
        raise ValueError(f"{file} keeps what is sent in {artifacts}, not in {local / ARTIFACTS}; move the file away")


def _identity(uri: str | None) -> str:
    """The file that keeps the run's identity in a store: one for each, as none knows the others'."""
    return f"mlflow_id-{hashlib.blake2b(uri.encode(), digest_size=4).hexdigest()}" if uri else "mlflow_id"
