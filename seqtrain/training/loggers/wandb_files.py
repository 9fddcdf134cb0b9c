"""What W&B's files in a run directory say of earlier attempts, none of which is read by W&B itself."""

from __future__ import annotations

import math
from pathlib import Path

from seqtrain.files.atomic import write_text
from seqtrain.files.checked import open_append, read_checked
from seqtrain.runs.directory import Run
from seqtrain.training.loggers.base import MAX_IDENTITY_BYTES

SENT = "wandb_sent"  # a file of the run: the place of the newest record that W&B got, and its number of rows


def rows_before(directory: Path) -> int:
    """As many rows as earlier attempts can have sent, or more: W&B wants them counted on from there.

    One for each record, and for each text, table and picture, which W&B keeps; or what an attempt that ended has left.
    """
    if not has_files(directory):
        return 0
    records = sum(1 for _ in Run(directory).records())
    media = sum(1 for path in directory.glob("wandb/*run-*/files/media/**/*") if path.is_file())
    return max(records + media, sent_before(directory)[1])


def sent_before(directory: Path) -> tuple[float, int]:
    """What W&B got in earlier attempts: the place of the newest record, and the number of rows."""
    known = directory / SENT
    if known.exists():
        record, rows = map(int, read_checked(known, MAX_IDENTITY_BYTES).split())
        return record, rows
    if has_files(directory):  # of a training that was killed: what it holds is not known
        return math.inf, 0
    return 0, 0


def write_sent(directory: Path, record: int, rows: int) -> None:
    """Keeps what W&B has got by now, for attempts to come."""
    write_text(directory / SENT, f"{record} {rows}\n")


def has_files(directory: Path) -> bool:
    """Whether there was an earlier attempt."""
    return any(directory.glob("wandb/*run-*"))


def leave_out(directory: Path) -> None:
    """Lets `wandb sync` pass over the offline files of a run: what they hold has been sent."""
    home = directory.resolve()
    for path in directory.glob("wandb/offline-run-*/run-*.wandb"):
        if path.resolve().parent.is_relative_to(home):
            open_append(path.with_name(f"{path.name}.synced")).close()  # which follows no link
