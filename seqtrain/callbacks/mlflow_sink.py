"""MLflow as a sink of records."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import rank_zero_experiment

from seqtrain.callbacks.base_sink import Sink, remembered

MOST, LONGEST = 100, 500  # parameters that one batch takes, characters that one value takes


class MLflowSink(Sink):
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
        client = MlflowClient(self._uri or f"sqlite:///{local / 'mlflow.db'}")
        identity = self._directory / "mlflow_id"
        resumes = identity.exists()
        self._id = remembered(identity, lambda: self._create(client, local))
        if resumes:
            client.update_run(self._id, status="RUNNING")
            return client
        params = [Param(key, str(value)[:LONGEST]) for key, value in _flat(self._config)]
        for start in range(0, len(params), MOST):
            client.log_batch(self._id, params=params[start : start + MOST])
        return client

    def _create(self, client: Any, local: Path) -> str:
        known = client.get_experiment_by_name(self._experiment)
        artifacts = None if self._uri else (local / "mlflow_artifacts").as_uri()
        number = known.experiment_id if known else client.create_experiment(self._experiment, artifacts)
        return client.create_run(number, run_name=self._directory.name).info.run_id

    def _metrics(self, metrics: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        now = int(time.time() * 1000)
        points = [Metric(name, float(value), now, step) for name, value in metrics.items() if name != "step"]
        self._open().log_batch(self._id, metrics=points)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open().log_text(self._id, text, f"{name}/step-{step:08d}.txt")

    def _image(self, name: str, path: Path, step: int) -> None:
        self._open().log_artifact(self._id, str(path), name)

    def _end(self, success: bool) -> None:
        if self._client is not None:
            self._client.set_terminated(self._id, "FINISHED" if success else "FAILED")
            self._client = None


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
