"""Server addresses of loggers: they must be typed or set in the environment, not come from a run's config."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from seqtrain.config.check import key_of
from seqtrain.errors import UserError
from seqtrain.runs.directory import CONFIG, Run
from seqtrain.sweeps.folder import ENDED, Sweep

KEY, VARIABLE = "tracking_uri", "MLFLOW_TRACKING_URI"


def check_run(run: Run, typed: Collection[str] = ()) -> None:
    """Raise UserError for a server address that only the run's config names.

    Args:
        run: The run whose loggers are checked.
        typed: Overrides of this command. An address that is typed here is accepted.
    """
    loggers = run.config.get("logger")
    if not isinstance(loggers, dict):
        return
    for name, logger in loggers.items():
        key = f"logger.{name}.{KEY}"
        if isinstance(logger, dict) and key not in map(key_of, typed):
            _check(key, logger.get(KEY), run.path, f"give {key}=... again, or ")


def check_sweep(sweep: Sweep) -> None:
    """Check a sweep in the same way, and also its trials that have begun and not ended."""
    trials = sweep.trials()
    overrides = itertools.chain(sweep.asked.overrides, *(trial.overrides for trial in trials))
    for word in overrides:
        key = key_of(word)
        if key.startswith("logger.") and key.endswith(f".{KEY}"):
            _check(key, word.partition("=")[2].strip("'\""), sweep.path)
    # The config of a trial that has begun may be another than its overrides say: it is a file as well.
    for trial in trials:
        if (trial.path / CONFIG).exists() and trial.status not in ENDED:
            check_run(Run.open(trial.path))


def _check(key: str, address: Any, where: Path, remedy: str = "") -> None:
    # The environment is set by the user, so the same address in a config is safe.
    if address not in (None, "null", os.environ.get(VARIABLE)):
        raise UserError(
            f"{where}: {key}={address}: its records would go there, and nobody but its config says so; "
            f"if you know that server, {remedy}set {VARIABLE} to it"
        )
