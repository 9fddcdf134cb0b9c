"""Tables, charts and artifacts in the form that W&B takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wandb

from seqtrain.runs.shown import Confusion, Table
from seqtrain.training.loggers.model import exported

CONFUSION_CHART = "wandb/confusion_matrix/v1"  # W&B's own, with the columns that it wants
CONFUSION_COLUMNS = ("Actual", "Predicted", "nPredictions")


def sample_table(table: Table, step: int) -> Any:
    """Return samples by columns, the first of which is the step."""
    return _table(["step", *table.columns], [[step, *row] for row in table.rows])


def confusion_chart(confusion: Confusion) -> Any:
    """Return the chart of wandb.plot.confusion_matrix, made from counts instead of single examples."""
    rows: list[list[Any]] = []
    for label, counts in zip(confusion.labels, confusion.counts, strict=True):
        for other, count in zip(confusion.labels, counts, strict=True):
            rows.append([label, other, count])
    return wandb.plot_table(
        vega_spec_name=CONFUSION_CHART,
        data_table=_table([*CONFUSION_COLUMNS], rows),
        fields={column: column for column in CONFUSION_COLUMNS},
        string_fields={"title": "confusion matrix of validation"},
    )


def log_model(run: Any, directory: Path, figures: dict[str, Any]) -> None:
    """Send the best checkpoint as an artifact of a W&B run. W&B makes no new version of equal weights."""
    about = {name: value for name, value in figures.items() if name in ("best", "parameters")}
    artifact = wandb.Artifact(f"model-{run.id}", type="model", metadata=about)
    with exported(directory) as folder:
        artifact.add_dir(str(folder))  # which copies
    run.log_artifact(artifact, aliases=["latest", "best"])


def _table(columns: list[Any], rows: list[Any]) -> Any:
    return wandb.Table(columns=columns, data=rows, allow_mixed_types=True)  # nan is written as a word
