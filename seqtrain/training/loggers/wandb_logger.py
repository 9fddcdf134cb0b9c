"""Weights & Biases as a logger of records."""

from __future__ import annotations

import contextlib
import html
import logging
import math
import netrc
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pytorch_lightning.loggers.logger import rank_zero_experiment

from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import expanded
from seqtrain.runs.directory import Run
from seqtrain.runs.provenance import mask_command
from seqtrain.runs.shown import Confusion, Table
from seqtrain.runs.summary import Summary
from seqtrain.terminal import pasted
from seqtrain.training.loggers.base import (
    MAX_MODEL_SECONDS,
    Record,
    RunLogger,
    answers,
    direction,
    load_or_make_identity,
    say,
    went_well,
)
from seqtrain.training.loggers.model import has_best

Mode = Literal["online", "offline", "disabled"]
Axis = Literal["tokens", "steps", "seconds", "flops"]
IDENTITY = "wandb_id"  # a file of the run
MAX_START_SECONDS = 10.0  # that W&B may take to begin online
MAX_FINISH_SECONDS = 15.0  # and to send the rest at the end


class WandbRunLogger(RunLogger):
    """One W&B run, the same in every attempt. `options`: those of wandb.init; `x`: the x-axis of its charts."""

    def __init__(
        self, directory: Path, mode: Mode, options: dict[str, Any], x: Axis, *, log_model: bool = False
    ) -> None:
        super().__init__("W&B", directory)
        self._log_model = log_model
        self._mode: Mode = mode
        self._options = options
        self._axis = "step" if x == "steps" else x  # our records use the singular
        self._run: Any = None
        self._begin_at: int | None = None  # W&B's own count of rows, if an earlier attempt sent some
        self._flops_per_token: float | None = None
        self._summary = Summary()  # of the run, once it is open
        self._known: set[str] = set()  # metrics whose direction W&B knows

    @property
    def mode(self) -> Mode:
        """Mode of W&B; final once the run is open."""
        return self._mode

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The W&B run. Lightning asks for it before the first step, so that no step waits for it."""
        self._send(self._open)
        return self._run

    def _open(self) -> Any:
        if self._run is None:
            summary = Run(self._directory).summary
            self._flops_per_token, self._summary = summary.flops_per_token, summary
            before = self._rows_before()
            self._run = self._begin()
            entity = self._options["entity"]
            if self._mode == "online" and entity:  # its config may be untrusted
                say(f"W&B: records go to {entity}/{self._options['project']}")
            if before > self._run.step:
                self._begin_at = before
            for name in {"record", self._axis}:
                self._run.define_metric(name, hidden=True)
            self._run.define_metric("*", step_metric=self._axis)
        return self._run

    def _rows_before(self) -> int:
        """Return an upper bound of the rows that earlier attempts sent: W&B continues its count from there.

        Each record is a row, and so is each text, table and picture.
        """
        if not (self._directory / IDENTITY).exists():
            return 0
        media = sum(1 for path in self._directory.glob("wandb/*run-*/files/media/**/*") if path.is_file())
        return media + sum(1 for _ in Run(self._directory).records())

    def _begin(self) -> Any:
        package = trusted_wandb()
        try:
            return self._init(self._mode)
        except (package.Error, TimeoutError) as error:
            if self._mode != "online":
                raise
            say(f"W&B: offline, because going online failed: {' '.join(str(error).split())}")
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # W&B's own telemetry fails as well
            package.teardown()  # its service still holds the run's identity
            self._mode = "offline"
            return self._init("offline")

    def _init(self, mode: Mode) -> Any:
        package = trusted_wandb()
        settings = package.Settings(
            silent=True,
            console="off",
            init_timeout=MAX_START_SECONDS,
            finish_timeout=MAX_FINISH_SECONDS + self.model_seconds,
            disable_git=True,  # its git would run what .git/config names
        )
        resume = "allow" if mode == "online" else None  # offline there is nothing to ask, and W&B would warn
        with _masked_arguments():
            return package.init(
                **self.identified(),
                dir=str(self._directory),
                mode=mode,
                resume=resume,
                reinit="create_new",
                settings=settings,
            )

    def identified(self) -> dict[str, Any]:
        """Return the options with the identity of the run. Under W&B's sweep agent, the identity is the agent's.

        Keys that the agent has set, such as `model` or `model.dim`, stand beside ours.
        """
        agent = os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ else None
        identity = load_or_make_identity(self._directory / IDENTITY, lambda: agent or secrets.token_hex(4))
        if agent is None:
            return {**self._options, "id": identity}
        return {**self._options, "project": None, "entity": None}

    def _forget(self) -> None:
        (self._directory / IDENTITY).unlink(missing_ok=True)

    def _metrics(self, metrics: Record, step: int) -> None:
        run = self._open()
        for name in metrics.keys() - self._known:
            better = direction(name, self._summary)
            if better:
                run.define_metric(name, step_metric=self._axis, summary=f"{better},last")
            self._known.add(name)
        if self._flops_per_token is not None and "tokens" in metrics:
            metrics = {**metrics, "flops": self._flops_per_token * metrics["tokens"]}
        self._row({name: value for name, value in metrics.items() if name != "time"})

    def _row(self, values: dict[str, Any]) -> None:
        """Log one row. W&B counts rows itself, and after a resume would drop rows that it has counted already."""
        if self._time is not None:  # else W&B takes the time at which it is sent
            values = {**values, "_timestamp": self._time}
        self._open().log(values, step=self._begin_at, commit=True)
        self._begin_at = None

    def _text(self, name: str, text: str, step: int) -> None:
        import wandb as package

        self._open()
        self._row({name: package.Html(f"<pre>{html.escape(text)}</pre>", inject=False), "step": step})

    def _image(self, name: str, path: Path, step: int) -> None:
        import wandb as package

        self._open()
        self._row({name: package.Image(str(path)), "step": step})

    def _table(self, name: str, table: Table, step: int) -> None:
        from seqtrain.training.loggers.wandb_values import sample_table

        self._open()
        self._row({name: sample_table(table, step), "step": step})

    def _confusion(self, name: str, confusion: Confusion, step: int) -> None:
        from seqtrain.training.loggers.wandb_values import confusion_chart

        self._open()
        self._row({name: confusion_chart(confusion), "step": step})

    @property
    def model_seconds(self) -> float:
        return MAX_MODEL_SECONDS if self._log_model else 0.0

    def _end(self, figures: dict[str, Any]) -> None:
        if self._run is None:
            return
        if self._log_model and went_well(figures) and has_best(self._directory):
            # Before `finish`, which waits for uploads.
            from seqtrain.training.loggers.wandb_values import log_model

            log_model(self._run, self._directory, figures)
        self._run.summary.update({**figures, **self._extremes()})
        start = time.monotonic()
        self._run.finish(exit_code=int(not went_well(figures)))
        self._run = None
        limit = MAX_FINISH_SECONDS + self.model_seconds
        if self._mode == "online" and time.monotonic() - start >= limit:
            again = pasted("seqtrain", "sync", Path(self._directory))
            say(f"W&B: no answer for {limit:g} s; `{again}` sends all of it as a new run")

    def _extremes(self) -> dict[str, dict[str, float]]:
        """Return best and last value of each metric over all attempts: W&B itself knows only those of this attempt."""
        extremes: dict[str, dict[str, float]] = {}
        run = Run(self._directory)
        summary = run.summary
        best_of = {"min": min, "max": max}
        for record in run.metrics():
            for name, value in record.items():
                better = direction(name, summary)
                if better and math.isfinite(value):
                    before = extremes.get(name, {}).get(better, value)
                    extremes[name] = {better: best_of[better](before, value), "last": value}
        return extremes


def wandb_mode(mode: Literal["auto", "online", "offline"], *, option: str = "logger.wandb.mode=") -> Mode:
    """Return the W&B mode that `mode`, given by `option`, results in; log a line if W&B cannot be online."""
    wished = os.environ.get("WANDB_MODE", "auto") if mode == "auto" else mode
    if wished in ("offline", "dryrun"):
        return "offline"
    if wished == "disabled":
        return "disabled"
    problem = wandb_problem()
    if problem is None:
        return "online"
    if mode == "online":
        raise Unavailable(f"{option}online cannot be: {problem}; or use {option}offline")
    say(f"W&B: offline, because there is {problem}")
    return "offline"


def wandb_problem() -> str | None:
    """Return why W&B cannot be online, with the remedy; None if it can."""
    package = trusted_wandb()
    try:
        settings = package.setup(package.Settings(silent=True)).settings
        host = urlsplit(settings.base_url).hostname or ""
    except Exception as error:  # variables may have values that W&B refuses
        return f"a fault in what the environment says of W&B ({' '.join(str(error).split())}): mend it"
    keys = (os.environ.get("WANDB_API_KEY"), os.environ.get("WANDB_IDENTITY_TOKEN_FILE"), settings.api_key)
    if not (any(keys) or _in_netrc(host)):
        return "no API key: `wandb login` gives one"
    return None if answers(settings.base_url) else f"no answer from {host}: check the network"


def trusted_wandb() -> Any:
    """Return the package, patched to read settings only from the environment and the user's own folder.

    It would read the host that gets the key, and more, from ./wandb/settings, and a config from ./config-defaults.yaml.
    The author of the working folder, who may be untrusted, would choose them.
    """
    import wandb as package
    from wandb.sdk.lib.settings_file import SettingsFiles
    from wandb.sdk.wandb_config import Config
    from wandb.sdk.wandb_settings import Settings

    def read_system_settings(settings: Settings) -> SettingsFiles:
        path = Path(settings.settings_workspace)
        if path.is_file():
            say(f"W&B: {path} is not read; logger.wandb.* and WANDB_BASE_URL say what it would")
        settings.disable_git = True  # or it would call git before any option can disable that
        own = settings.settings_system
        return SettingsFiles(global_settings=Path(own) if own else None, local_settings=Path(os.devnull))

    # No option disables these.
    setattr(Settings, "read_system_settings", read_system_settings)  # noqa: B010 - pyright knows its signature
    setattr(Config, "_load_defaults", lambda config: None)  # noqa: B010
    return package


def _in_netrc(host: str) -> bool:
    with contextlib.suppress(UserError, OSError, UnicodeError, netrc.NetrcParseError):
        return netrc.netrc(str(expanded(os.environ.get("NETRC", "~/.netrc")))).authenticators(host) is not None
    return False


@contextlib.contextmanager
def _masked_arguments() -> Iterator[None]:
    """Hide secrets of the command line, which W&B copies from sys.argv into its own record."""
    arguments = sys.argv
    sys.argv = mask_command(arguments)
    try:
        yield
    finally:
        sys.argv = arguments
