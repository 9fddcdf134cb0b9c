"""Logger that sends records to MLflow."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import time
from pathlib import Path
from typing import Any

from seqtrain.errors import Unavailable
from seqtrain.files.checked import open_checked
from seqtrain.runs.provenance import PASSWORD
from seqtrain.training.loggers.base import (
    NO_METRICS,
    Record,
    RunLogger,
    answers,
    figures_as_metrics,
    hyperparameters,
    load_or_make_identity,
    name_and_sweep,
    package,
)

MAX_BATCH, MAX_CHARACTERS = 100, 500  # parameters in a request to MLflow, and characters of a value
ARTIFACTS = "mlflow_artifacts"  # folder next to the runs, used without a server
STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "interrupted": "KILLED"}


class MLflowLogger(RunLogger):
    """Logger that writes all attempts of a run to one MLflow run."""

    def __init__(
        self, *, experiment: str, tracking_uri: str | None, log_model: bool, directory: Path, config: dict[str, Any]
    ) -> None:
        """Check that the server answers.

        Args:
            experiment: Name of the MLflow experiment.
            tracking_uri: Server. None: MLFLOW_TRACKING_URI, else a sqlite file beside the run directories.
            log_model: Send the best checkpoint at the end, as artifacts below `model`.
            directory: The run directory.
            config: Config of the run, its secrets masked.

        Raises:
            UserError: MLflow is not installed, or the server does not answer.
        """
        super().__init__("MLflow", directory, log_model=log_model)
        with package("mlflow"):
            import mlflow  # type: ignore[import-not-found]  # noqa: F401
        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        if uri and uri.startswith("http") and not answers(uri):
            raise Unavailable(
                f"logger.mlflow.tracking_uri={PASSWORD.sub('', uri)} does not answer: start the server or give "
                "another one"
            )
        self._config = config
        self._experiment = experiment
        self._uri = uri
        # The run has a separate identity in each tracking store.
        suffix = f"-{hashlib.blake2b(uri.encode(), digest_size=4).hexdigest()}" if uri else ""
        self._identity = directory / f"mlflow_id{suffix}"
        self._client: Any = None
        self._id = ""

    def _open(self) -> Any:
        if self._client is None:
            from mlflow import MlflowClient  # type: ignore[import-not-found]
            from mlflow.entities import Param  # type: ignore[import-not-found]

            for chatty in ("mlflow", "alembic"):
                logging.getLogger(chatty).setLevel(logging.WARNING)  # they log the creation of each table
            local = self._directory.resolve().parent
            file = local / "mlflow.db"
            had_file = not self._uri and os.path.lexists(file)
            if had_file:
                open_checked(file).close()  # raises for a link, which sqlite would follow, or a pipe
            client = MlflowClient(self._uri or f"sqlite:///{file}")
            resumes = self._identity.exists()
            self._id = load_or_make_identity(self._identity, lambda: self._create(client, local))
            artifacts = client.get_run(self._id).info.artifact_uri if had_file else ""
            if artifacts and (not artifacts.startswith(f"{(local / ARTIFACTS).as_uri()}/") or ".." in artifacts):
                raise ValueError(f"{file} stores artifacts in {artifacts}; move the file elsewhere")
            if resumes:
                client.update_run(self._id, status="RUNNING")
            else:
                options = hyperparameters(self._config).items()
                params = iter([Param(key, str(value)[:MAX_CHARACTERS]) for key, value in options])
                while batch := list(itertools.islice(params, MAX_BATCH)):
                    client.log_batch(self._id, params=batch)
            self._client = client
        return self._client

    def _create(self, client: Any, local: Path) -> str:
        """Create the run, and the experiment if it does not exist; return the run's identity."""
        experiment = client.get_experiment_by_name(self._experiment)
        if experiment is not None:
            number = experiment.experiment_id
        else:
            # Without a server MLflow would put artifacts into the working folder.
            number = client.create_experiment(self._experiment, None if self._uri else (local / ARTIFACTS).as_uri())
        name, sweep = name_and_sweep(self._directory)
        tags = {} if sweep is None else {"sweep": sweep}
        return client.create_run(number, tags=tags, run_name=name).info.run_id

    def _forget(self) -> None:
        self._identity.unlink(missing_ok=True)

    def _milliseconds(self) -> int:
        return int((self._time or time.time()) * 1000)

    def _metrics(self, metrics: Record, step: int) -> None:
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        when, points = self._milliseconds(), []
        for name, value in metrics.items():
            if name not in NO_METRICS:
                points.append(Metric(name, float(value), when, step))
        self._open().log_batch(self._id, metrics=points)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open().log_text(self._id, text, f"{name}/step-{step:08d}.txt")

    def _image(self, name: str, path: Path, step: int) -> None:
        self._open().log_artifact(self._id, str(path), name)

    def _model(self, folder: Path, figures: dict[str, Any]) -> None:
        self._open().log_artifacts(self._id, str(folder), "model")

    def _end(self, figures: dict[str, Any]) -> None:
        """Log the numbers of the summary as metrics, under their own names."""
        if self._client is not None:
            self._metrics(figures_as_metrics(figures), figures.get("steps", 0))
            status = STATUS.get(figures.get("status", ""), "FAILED")
            self._client.set_terminated(self._id, status, end_time=self._milliseconds())
            self._client = None
