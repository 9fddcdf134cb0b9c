"""Model of a run for loggers: its best checkpoint, exported, so that nothing in it can execute."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seqtrain.files.atomic import exists
from seqtrain.runs.checkpoint import BEST
from seqtrain.runs.directory import Run


def has_best(directory: Path) -> bool:
    """Return True if the run has a best checkpoint. A run that ended before its first validation has none."""
    return exists(Run(directory).path / "checkpoints" / BEST)


@contextlib.contextmanager
def exported(directory: Path) -> Iterator[Path]:
    """Yield a folder with the export of the run's best checkpoint, as `seqtrain export` writes it."""
    from seqtrain.inference.exported import write_export
    from seqtrain.inference.opened import open_run

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model"
        write_export(open_run(directory, "best"), target)
        yield target
