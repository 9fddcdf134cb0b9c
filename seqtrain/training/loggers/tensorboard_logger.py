"""TensorBoard as a logger of records: scalars, texts, pictures, and the HPARAMS tab."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml

from seqtrain.training.loggers.base import NO_METRICS, Record, RunLogger
from seqtrain.training.loggers.flattened import figures_as_metrics, hyperparameters

HPARAMS = ".hparams"  # suffix of the only file that the HPARAMS tab reads


class TensorBoardRunLogger(RunLogger):
    """Event files in `directory`/tensorboard."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        super().__init__("TensorBoard", directory)
        self._config = config
        self._writer: Any = None
        self._opened = False  # in this attempt

    @property
    def _folder(self) -> Path:
        return self._directory / "tensorboard"

    def _open(self, step: int) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._remove_hparams()
            folder, purge = self._folder, None
            if folder.exists() and not self._opened:  # a resume: hides what it overwrites
                purge = step
            self._opened = True
            _put_first(sorted(folder.glob("events.out.tfevents.*")))
            self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=10)
            self._writer.add_text("config", _preformatted(_yaml(self._config)), step, self._time)
        return self._writer

    def _forget(self) -> None:
        """Remove the event files: they can only grow."""
        for path in self._folder.glob("events.out.tfevents.*"):
            path.unlink()

    def _metrics(self, metrics: Record, step: int) -> None:
        writer = self._open(step)
        for name, value in metrics.items():
            if name not in NO_METRICS:
                writer.add_scalar(name, value, step, self._time)

    def _text(self, name: str, text: str, step: int) -> None:
        self._open(step).add_text(name, _preformatted(text), step, self._time)

    def _image(self, name: str, path: Path, step: int) -> None:
        from matplotlib.image import imread

        self._open(step).add_image(name, imread(path), step, self._time, dataformats="HWC")

    def _end(self, figures: dict[str, Any]) -> None:
        if self._writer is not None:
            step = figures.get("steps", 0)
            self._writer.add_text("summary", _preformatted(_yaml(figures)), step, self._time)
            self._writer.close()
            self._writer = None
            self._write_hparams(figures, step)

    def _write_hparams(self, figures: dict[str, Any], step: int) -> None:
        """Write hyperparameters with the final figures of the run, in a separate file.

        TensorBoard keeps the first hyperparameters that it reads of a run. A resume may have changed them, so it
        removes the file, and its end writes another. The file lies in the run's folder; SummaryWriter.add_hparams would
        make a run below the run.
        """
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        # Baselines would be a column each, and the same in every run of a comparison.
        metrics = {name: value for name, value in figures_as_metrics(figures).items() if not name.startswith("base")}
        writer = SummaryWriter(str(self._folder), filename_suffix=HPARAMS)
        for summary in hparams(hyperparameters(self._config), metrics):
            writer._get_file_writer().add_summary(summary, step, self._time)
        # The tab shows the newest point of each of these names.
        for name, value in metrics.items():
            writer.add_scalar(name, value, step, self._time)
        writer.close()

    def _remove_hparams(self) -> None:
        for path in self._folder.glob(f"events.out.tfevents.*{HPARAMS}"):
            path.unlink()


def _put_first(files: list[Path]) -> None:
    """Rename event files so that they sort before a new one: they are read by name; the clock may have gone back."""
    if not files or int(files[-1].name.split(".")[3]) < int(time.time()):
        return
    for number, path in enumerate(files):
        words = path.name.split(".")  # events, out, tfevents, the time in seconds, the host, ...
        path.rename(path.with_name(".".join([*words[:3], f"{number:010d}", *words[4:]])))


def _yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _preformatted(text: str) -> str:
    """Return Markdown that shows `text` verbatim: text indented by four spaces is code."""
    return "".join(f"    {line}\n" for line in text.splitlines())
