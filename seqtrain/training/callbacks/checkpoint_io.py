"""Lightning's way to checkpoint files, through ours: atomic, verified, tensors and plain containers only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning.plugins.io import CheckpointIO

from seqtrain.runs import checkpoint as files


class AtomicCheckpointIO(CheckpointIO):
    """Lightning's own stages in the temporary folder and moves: a kill there destroys the previous good file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes `path`, whole or not at all; OSError when the disk is full, and the old file stands."""
        files.save(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The checkpoint on the CPU, whatever `map_location`; always with weights_only; UserError when it is not
        sound."""
        return files.load(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Deletes the file if it is there."""
        Path(path).unlink(missing_ok=True)
