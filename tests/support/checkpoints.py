"""Whether a checkpoint is sound, for tests: the commands ask for the newest that is."""

from __future__ import annotations

from pathlib import Path

from seqtrain.runs.checkpoint import Unsound, _opened


def is_valid(path: Path) -> bool:
    """Whether `load` takes the file, and what it gives is what was written (by the checksums of the zip entries).

    UserError where it cannot be read, which says nothing of what it holds.
    """
    try:
        _opened(path, mmap=True)
    except Unsound:
        return False
    return True
