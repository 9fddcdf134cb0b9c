"""Logger that writes records for TensorBoard: scalars, texts, images, and the HPARAMS tab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from seqtrain.training.loggers.base import (
    NO_METRICS,
    Record,
    RunLogger,
    figures_as_metrics,
    hyperparameters,
    package,
    preformatted,
)

HPARAMS = ".hparams"  # suffix of the only file that the HPARAMS tab reads


class TensorBoardLogger(RunLogger):
    """Logger that writes event files to `directory`/tensorboard."""

    def __init__(self, *, directory: Path, config: dict[str, Any]) -> None:
        """Store the config. Raises UserError if TensorBoard is not installed."""
        super().__init__("TensorBoard", directory)
        with package("tensorboard"):
            import tensorboard  # noqa: F401
            import torch.utils.tensorboard  # noqa: F401 - imported here, so that no step waits for it
        self._config = config
        self._folder = directory / "tensorboard"
        self._writer: Any = None

    def _open_at(self, step: int) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            purge = step if self._folder.exists() else None  # on a resume, hides the points that are written again
            self._remove(f"events.out.tfevents.*{HPARAMS}")
            self._writer = SummaryWriter(str(self._folder), purge_step=purge, flush_secs=10)
            self._writer.add_text("config", preformatted(_yaml(self._config)), step, self._time)
        return self._writer

    def _forget(self) -> None:
        """Remove the event files, because points can only be appended to them."""
        self._remove("events.out.tfevents.*")

    def _remove(self, pattern: str) -> None:
        for path in self._folder.glob(pattern):
            path.unlink()

    def _metrics(self, metrics: Record, step: int) -> None:
        writer = self._open_at(step)
        for name, value in metrics.items():
            if name not in NO_METRICS:
                writer.add_scalar(name, value, step, self._time)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open_at(step).add_text(name, preformatted(text), step, self._time)

    def _image(self, name: str, path: Path, step: int) -> None:
        from matplotlib.image import imread

        self._open_at(step).add_image(name, imread(path), step, self._time, dataformats="HWC")

    def _end(self, figures: dict[str, Any]) -> None:
        if self._writer is not None:
            step = figures.get("steps", 0)
            self._writer.add_text("summary", preformatted(_yaml(figures)), step, self._time)
            self._writer.close()
            self._writer = None
            self._write_hparams(figures, step)

    def _write_hparams(self, figures: dict[str, Any], step: int) -> None:
        """Write hyperparameters with the final figures of the run, in a separate file.

        TensorBoard keeps the first hyperparameters that it reads for a run. A resume may change them, so it removes the
        file, and writes a new one when it ends. The file is in the run's folder; SummaryWriter.add_hparams would create
        a second run below it.
        """
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        # Without baselines: each would be a column with the same value in every run of a comparison.
        metrics = {name: value for name, value in figures_as_metrics(figures).items() if not name.startswith("base")}
        writer = SummaryWriter(str(self._folder), filename_suffix=HPARAMS)
        for summary in hparams(hyperparameters(self._config), metrics):
            writer._get_file_writer().add_summary(summary, step, self._time)
        # The tab shows the newest point of each of these names.
        for name, value in metrics.items():
            writer.add_scalar(name, value, step, self._time)
        writer.close()


def _yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
