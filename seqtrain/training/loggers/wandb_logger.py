"""Logger that sends records to Weights & Biases."""

from __future__ import annotations

import contextlib
import functools
import html
import logging
import netrc
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import expanded
from seqtrain.runs.directory import Run
from seqtrain.runs.provenance import mask_command
from seqtrain.runs.shown import Table
from seqtrain.sweeps.folder import member_of
from seqtrain.terminal import pasted, tell
from seqtrain.training.loggers.base import (
    Record,
    RunLogger,
    answers,
    chosen,
    load_or_make_identity,
    went_well,
)

Mode = Literal["online", "offline", "disabled"]
Axis = Literal["tokens", "steps", "seconds", "flops"]
IDENTITY = "wandb_id"  # file in the run directory
MAX_START_SECONDS = 10.0  # for W&B to start online
MAX_FINISH_SECONDS = 15.0  # for W&B to send the rest at the end
AGENT_VARIABLES = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")  # set by W&B's sweep agent


class WandbLogger(RunLogger):
    """Logger that writes all attempts of a run to one W&B run. It never prompts and waits at most a few seconds.

    The number of a row is the record's position in metrics.jsonl, so a resumed run continues after the rows sent.
    """

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        name: str | None,
        group: str | None,
        job_type: str,
        tags: list[str],
        x: Axis,
        mode: Literal["auto", "online", "offline"],
        log_model: bool,
        directory: Path,
        config: dict[str, Any],
    ) -> None:
        """Decide whether W&B is online.

        Args:
            project: W&B project.
            entity: W&B user or team. None: the default.
            name: Name of the W&B run. None: that of the run directory, or the trial's label.
            group: Group of the W&B run. None: the sweep of a trial.
            job_type: W&B job type.
            tags: W&B tags.
            x: Quantity on the x-axis of charts.
            mode: With `auto`, WANDB_MODE decides; without it, online if there is an API key and the host answers.
            log_model: Send the best checkpoint at the end, as an artifact.
            directory: The run directory, which also contains W&B's files.
            config: Config of the run, its secrets masked.

        Raises:
            UserError: `mode=online` is not possible.
        """
        if member := member_of(directory):
            for variable in AGENT_VARIABLES:  # the agent sets one identity, but each trial needs its own
                os.environ.pop(variable, None)
            name, group = name or member.label, group or member.sweep
        super().__init__("W&B", directory, log_model=log_model)
        self.mode = wandb_mode(mode)
        # W&B advises against dots in keys, and cannot filter by them: options stay nested.
        plain = {key: value for key, value in config.items() if not isinstance(value, dict)}
        self._options = {
            "project": project,
            "entity": entity,
            "name": name or directory.name,
            "group": group or None,
            "job_type": job_type,
            "tags": tags,
            "config": {**plain, **chosen(config), "options": config},
        }
        self._axis = "step" if x == "steps" else x  # our records use the singular
        self._flops_per_token: float | None = None
        self._place: int | None = None  # of the newest record
        self._run: Any = None

    def _open(self) -> Any:
        if self._run is None:
            self._flops_per_token = Run(self._directory).summary.flops_per_token
            self._run = self._begin()
            if self.mode == "online" and self._options["entity"]:  # named, since the config may be untrusted
                tell(f"W&B: records go to {self._options['entity']}/{self._options['project']}")
            self._run.define_metric(self._axis, hidden=True)
            self._run.define_metric("*", step_metric=self._axis)
        return self._run

    def _begin(self) -> Any:
        package = trusted_wandb()
        try:
            return self._init()
        except (package.Error, TimeoutError) as error:
            if self.mode != "online":
                raise
            tell(f"W&B: offline, because going online failed: {' '.join(str(error).split())}")
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # W&B's own telemetry fails as well
            package.teardown()  # its service still holds the run's identity
            self.mode = "offline"
            return self._init()

    def _init(self) -> Any:
        package = trusted_wandb()
        settings = package.Settings(
            silent=True,
            console="off",
            init_timeout=MAX_START_SECONDS,
            finish_timeout=MAX_FINISH_SECONDS + self._model_seconds,
        )
        typed, sys.argv = sys.argv, mask_command(sys.argv)  # W&B stores the command line
        try:
            return package.init(
                **self.identified(),
                dir=str(self._directory),
                mode=self.mode,
                resume="allow" if self.mode == "online" else None,  # offline it would warn
                reinit="create_new",
                settings=settings,
            )
        finally:
            sys.argv = typed

    def identified(self) -> dict[str, Any]:
        """Return the options with the identity of the run. Under W&B's sweep agent, the identity is the agent's.

        Keys that the agent has set, such as `model` or `model.dim`, are kept next to ours.
        """
        agent = os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ else None
        identity = load_or_make_identity(self._directory / IDENTITY, lambda: agent or secrets.token_hex(4))
        if agent is None:
            return {**self._options, "id": identity}
        return {**self._options, "project": None, "entity": None}

    def _forget(self) -> None:
        (self._directory / IDENTITY).unlink(missing_ok=True)

    def _metrics(self, metrics: Record, step: int) -> None:
        self._open()
        self._place = metrics.get("record")
        values = {name: value for name, value in metrics.items() if name not in ("record", "time")}
        if self._flops_per_token is not None and "tokens" in metrics:
            values["flops"] = self._flops_per_token * metrics["tokens"]
        self._add(values)

    def _text(self, name: str, text: str, step: int) -> None:
        import wandb

        self._add({name: wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False)})

    def _image(self, name: str, path: Path, step: int) -> None:
        import wandb

        self._add({name: wandb.Image(str(path))})

    def _table(self, name: str, table: Table, step: int) -> None:
        import wandb

        columns: list[Any] = ["step", *table.columns]
        rows: list[Any] = [[step, *row] for row in table.rows]
        self._add({name: wandb.Table(columns=columns, data=rows, allow_mixed_types=True)})  # nan becomes a string

    def _add(self, values: dict[str, Any]) -> None:
        """Add values to the row of the newest record, at its time."""
        if self._time is not None:  # otherwise W&B uses the time of sending
            values["_timestamp"] = self._time
        self._open().log(values, step=self._place)

    def _model(self, folder: Path, figures: dict[str, Any]) -> None:
        """Send the model as an artifact. W&B does not create a new version of equal weights."""
        import wandb

        run, about = self._open(), {name: value for name, value in figures.items() if name in ("best", "parameters")}
        artifact = wandb.Artifact(f"model-{run.id}", type="model", metadata=about)
        artifact.add_dir(str(folder))  # copies the files
        run.log_artifact(artifact, aliases=["latest", "best"])

    def _end(self, figures: dict[str, Any]) -> None:
        if self._run is None:
            return
        self._run.summary.update(figures)
        start = time.monotonic()
        self._run.finish(exit_code=int(not went_well(figures)))
        self._run = None
        limit = MAX_FINISH_SECONDS + self._model_seconds
        if self.mode == "online" and time.monotonic() - start >= limit:
            again = pasted("seqtrain", "sync", Path(self._directory))
            tell(f"W&B: no answer for {limit:g} s; `{again}` sends the whole record as a new run")


def wandb_mode(mode: Literal["auto", "online", "offline"]) -> Mode:
    """Return the W&B mode that `mode` results in; log a line if W&B cannot be online."""
    wished = os.environ.get("WANDB_MODE", "auto") if mode == "auto" else mode
    if wished in ("offline", "dryrun"):
        return "offline"
    if wished == "disabled":
        return "disabled"
    problem = wandb_problem()
    if problem is None:
        return "online"
    if mode == "online":
        raise Unavailable(f"logger.wandb.mode=online: there is {problem}; or use logger.wandb.mode=offline")
    tell(f"W&B: offline, because there is {problem}")
    return "offline"


def wandb_problem() -> str | None:
    """Return why W&B cannot be online, with the remedy; None if it can."""
    package = trusted_wandb()
    try:
        settings = package.setup(package.Settings(silent=True)).settings
        host = urlsplit(settings.base_url).hostname or ""
    except Exception as error:  # variables may have values that W&B rejects
        return f"an invalid W&B variable in the environment ({' '.join(str(error).split())}): correct it"
    keys = (os.environ.get("WANDB_API_KEY"), os.environ.get("WANDB_IDENTITY_TOKEN_FILE"), settings.api_key)
    if not (any(keys) or _in_netrc(host)):
        return "no API key: set one with `wandb login`"
    return None if answers(settings.base_url) else f"no answer from {host}: check the network"


@functools.cache
def trusted_wandb() -> Any:
    """Return the package, patched to read settings only from the environment and the user's own folder.

    Otherwise W&B would read the host that receives the key, and more, from ./wandb/settings, and a config from
    ./config-defaults.yaml. The author of the working folder, who may be untrusted, could choose both.
    """
    import wandb
    from wandb.sdk.wandb_config import Config
    from wandb.sdk.wandb_settings import Settings

    for path in (Path("wandb", "settings"), Path(".wandb", "settings")):
        if path.is_file():
            tell(f"W&B: {path} is not read; use logger.wandb.* and WANDB_BASE_URL instead")
    os.environ["WANDB_DISABLE_GIT"] = "true"  # git as W&B calls it would run programs named in .git/config
    # No option disables the reading of these files.
    setattr(Settings, "settings_workspace", property(lambda settings: os.devnull))  # noqa: B010 - pyright knows its type
    setattr(Config, "_load_defaults", lambda config: None)  # noqa: B010
    return wandb


def _in_netrc(host: str) -> bool:
    with contextlib.suppress(UserError, OSError, UnicodeError, netrc.NetrcParseError):
        return netrc.netrc(str(expanded(os.environ.get("NETRC", "~/.netrc")))).authenticators(host) is not None
    return False
