"""Lightning's interface to checkpoint files: atomic, verified, tensors and plain containers only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning.plugins.io import CheckpointIO

from seqtrain.runs import checkpoint as files


class AtomicCheckpointIO(CheckpointIO):
    """Atomic checkpoint files. Lightning's own move from the temporary folder loses the old file if killed."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write `path` atomically. Raises OSError if the disk is full; the old file is kept."""
        files.save(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the checkpoint on the CPU with weights_only, ignoring the arguments. Raises UserError if damaged."""
        return files.load(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete the file if it exists."""
        Path(path).unlink(missing_ok=True)
