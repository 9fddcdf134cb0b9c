"""Logger that sends records to Trackio: a live dashboard on this machine, without an account or a server."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from seqtrain.terminal import pasted, tell
from seqtrain.training.loggers.base import (
    NO_METRICS,
    Record,
    RunLogger,
    figures_as_metrics,
    hyperparameters,
    name_and_sweep,
    package,
    preformatted,
)


class TrackioLogger(RunLogger):
    """Logger with a Trackio run for each attempt: Trackio cannot remove the steps that a resume repeats."""

    def __init__(self, *, project: str, directory: Path, config: dict[str, Any]) -> None:
        """Store the config.

        Args:
            project: Name of the Trackio project: `trackio show --project NAME` opens its dashboard.
            directory: The run directory.
            config: Config of the run, its secrets masked.

        Raises:
            UserError: Trackio is not installed.
        """
        super().__init__("Trackio", directory)
        with package("trackio"):
            import trackio  # type: ignore[import-not-found]  # noqa: F401 - so that no step waits for it
        self._project = project
        self._config = config
        self._run: Any = None

    def _open(self) -> Any:
        if self._run is None:
            import trackio  # type: ignore[import-not-found]

            name, sweep = name_and_sweep(self._directory)
            with contextlib.redirect_stdout(io.StringIO()):  # its greeting must not mix with results
                self._run = trackio.init(
                    self._project,
                    name,
                    sweep,
                    config=hyperparameters(self._config),
                    auto_log_gpu=False,
                    auto_log_cpu=False,
                )
            tell(f"Trackio: {pasted('trackio', 'show', '--project', self._project)} opens the dashboard")
        return self._run

    def _metrics(self, metrics: Record, step: int) -> None:
        self._open().log({name: value for name, value in metrics.items() if name not in NO_METRICS}, step)

    def _text(self, name: str, text: str, step: int) -> None:
        from trackio import Markdown  # type: ignore[import-not-found]

        self._open().log({name: Markdown(preformatted(text))}, step)

    def _image(self, name: str, path: Path, step: int) -> None:
        from trackio import Image  # type: ignore[import-not-found]

        self._open().log({name: Image(path)}, step)

    def _end(self, figures: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.log(figures_as_metrics(figures), figures.get("steps", 0))
            with contextlib.redirect_stdout(io.StringIO()):
                self._run.finish()
            self._run = None
