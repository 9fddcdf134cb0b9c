"""Forecasts in Python: what comes after the series of a file or of a table in memory, as columns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.errors import UserError
from seqtrain.inference.forecasts import continue_file

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened

EXPECTED = "a path, a dict of columns, or a table of pandas or pyarrow"


def forecast(opened: Opened, series: Any, say: Callable[[str], None]) -> dict[str, list[Any]]:
    """Forecast the continuation of series, as columns.

    Args:
        opened: A run whose task reads series.
        series: A path, a dict of columns, or a table.
        say: Receives messages on how its rows were read.

    Raises:
        UserError: It is none of these, or cannot be continued.
    """
    name = opened.task.name()
    if not opened.task.reads_values():
        raise UserError(f"task={name} continues no series; ask it by predict")
    if isinstance(series, str | Path):
        continued = continue_file(opened, Path(series), called=str(series), say=say)
    else:
        # Through a file, so that whatever holds of files holds of tables too.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            _write(series, path)
            try:
                continued = continue_file(opened, path, called="the table", say=say)
            except UserError as fault:
                # No caller knows of this file.
                raise UserError(*(line.replace(str(path), "the table") for line in fault.lines)) from None
    columns: dict[str, list[Any]] = {}
    for each in continued:
        for row in each.rows():
            for column, value in row.items():
                columns.setdefault(column, []).append(value)
    return columns


def _write(table: Any, path: Path) -> None:
    """Write an in-memory table as parquet. Raise UserError if it is not a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pa.table(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # A list of rows and the like are not guessed at.
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UserError(f"expected {EXPECTED}, not a {type(table).__name__} ({reason})") from None
    pq.write_table(found, path)
