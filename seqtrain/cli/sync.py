"""`seqtrain sync`: replay the records of runs into a new run of W&B, MLflow or TensorBoard."""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml

from seqtrain.cli.arguments import Parser, say
from seqtrain.errors import UserError
from seqtrain.files.atomic import listed
from seqtrain.runs.directory import Run
from seqtrain.runs.listing import list_runs
from seqtrain.runs.shown import read_confusion, read_samples, steps_with_confusion, steps_with_samples
from seqtrain.sweeps.folder import is_sweep
from seqtrain.terminal import pasted

if TYPE_CHECKING:
    from seqtrain.training.loggers.base import RunLogger

# Options, and the destination that each is for.
DESTINATIONS = {
    "mode": "wandb",
    "project": "wandb",
    "entity": "wandb",
    "experiment": "mlflow",
    "tracking_uri": "mlflow",
}
NAMES = {"mlflow": "MLflow", "tensorboard": "TensorBoard"}


@dataclass(frozen=True)
class Sent:
    """Counts of what was sent for a run."""

    records: int
    samples: int
    plots: int


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "sync",
        "Replay what a run, or every run of a sweep, has recorded into a new run of W&B, MLflow or TensorBoard:\n"
        "metrics.jsonl as it stands, samples, plots, config and summary. A run that was offline is sent by W&B's own\n"
        "`wandb sync`. Project and entity are those of the run's config; you give the address of an MLflow server.",
        "seqtrain sync outputs/2026-11-21_02-04-00_sweep --to wandb",
    )
    parser.add_argument("paths", nargs="+", metavar="RUN|SWEEP", type=Path)
    parser.add_argument("--to", default="wandb", choices=("wandb", "mlflow", "tensorboard"))
    parser.add_argument("--mode", choices=("online", "offline"), help="of W&B; else online if that can be")
    parser.add_argument("--project", help="of W&B; else the run's own")
    parser.add_argument("--entity", help="of W&B; else the run's own")
    parser.add_argument("--log-model", action="store_true", help="send the best checkpoint too: W&B, MLflow")
    parser.add_argument("--experiment", help="of MLflow; else seqtrain")
    parser.add_argument("--tracking-uri", help="of MLflow; else MLFLOW_TRACKING_URI, or sqlite beside the runs")
    options = parser.parse_args(argv)
    _refuse_useless(options)
    # All are opened before the first one is sent: what is wrong with the last one is told at once.
    runs = list(itertools.chain.from_iterable(map(_runs, options.paths)))
    destination = _destination(options)
    return max([_sync(run, options, destination) for run in runs])


def _refuse_useless(options: argparse.Namespace) -> None:
    lines = []
    if options.log_model and options.to == "tensorboard":
        lines.append("--log-model: TensorBoard keeps no models; leave it out")
    for name, destination in DESTINATIONS.items():
        if getattr(options, name) is not None and destination != options.to:
            lines.append(f"--{name.replace('_', '-')}: is for --to {destination}; leave it out")
    if lines:
        raise UserError(*lines)


def _runs(path: Path) -> list[Run]:
    """Return the run at `path`, or the runs of the sweep; raise UserError if there are none."""
    if not is_sweep(path):
        return [Run.open(path)]
    runs = list_runs(path)
    if not runs:
        raise UserError(f"{path}: no trial of this sweep has begun; `{pasted('seqtrain', 'resume', path)}` runs them")
    return runs


def _destination(options: argparse.Namespace) -> str:
    """Return the name of the destination. The mode of W&B is decided here, once for all runs."""
    if options.to != "wandb":
        return NAMES[options.to]
    from seqtrain.training.loggers.wandb_logger import wandb_mode

    options.mode = wandb_mode(options.mode or "auto", option="--mode ")
    if options.mode == "disabled":  # W&B would take all of it, say nothing, and keep nothing
        raise UserError("WANDB_MODE=disabled: W&B takes nothing; unset it or use --mode offline")
    return f"W&B {options.mode}"


def _sync(run: Run, options: argparse.Namespace, destination: str) -> int:
    """Send one run and print the counts; return the exit code."""
    try:
        sent = _send(run, options)
    except UserError as fault:
        for line in fault.lines:
            say(f"error: {line}")
        return 2
    if sent is None:  # the logger has said why
        return 2
    if options.json:
        print(json.dumps({"run": str(run.path), "to": destination, **asdict(sent)}), flush=True)
    else:
        counts = ", ".join(f"{name} {number:,}" for name, number in asdict(sent).items())
        print(f"{run.path} to {destination}: {counts}", flush=True)
    return 0


def _send(run: Run, options: argparse.Namespace) -> Sent | None:
    """Replay the run into a new one at the destination. Return None if that failed."""
    from seqtrain.training.callbacks.record import point

    run = Run.open(run.path)
    run.claim()
    try:
        run_logger = _make_logger(run, options)
        run_logger.trouble = f"error: {run.path}: not sent, {run_logger.label} failed"
        run_logger.begin_anew()
        # Its place identifies a record: a step may be recorded twice, by training and by validation.
        records = [{**point(record), "record": place} for place, record in run.standing() if "step" in record]
        samples = _send_records(run_logger, run, records)
        plots = _send_plots(run_logger, run, records[-1]["step"]) if records else 0
        run_logger.end(run.summary)
        return None if run_logger.broken else Sent(len(records), samples, plots)
    finally:
        run.close()


def _send_records(run_logger: RunLogger, run: Run, records: list[dict[str, Any]]) -> int:
    """Send each record, and after the last record of a step its samples and plots; return the number of samples."""
    from seqtrain.training.loggers.shown import log_fans, log_samples

    sampled, confused = steps_with_samples(run), steps_with_confusion(run)
    last = {record["step"]: record["record"] for record in records}  # later ones of a step replace earlier ones
    for record in records:
        step = record["step"]
        run_logger.log_metrics(record, step)
        # A step may have two records, of training and of validation: what is shown follows the second, as live.
        if last[step] != record["record"]:
            continue
        samples = read_samples(run, step) if step in sampled else None
        if samples is not None:
            log_samples(run_logger, samples, step)
            log_fans([run_logger], samples, step)
        if step in confused:
            _send_confusion(run_logger, run, step)
    return len(sampled & last.keys())


def _send_confusion(run_logger: RunLogger, run: Run, step: int) -> None:
    """Send the confusion matrix of a step, drawn again: the run keeps only the newest picture."""
    from seqtrain.training.callbacks.confusion import draw_confusion
    from seqtrain.training.loggers.shown import log_confusion

    confusion = read_confusion(run, step)
    with tempfile.TemporaryDirectory() as folder:
        picture = None if confusion is None else draw_confusion(confusion, Path(folder) / "confusion.png")
        if confusion is not None and picture is not None:
            log_confusion(run_logger, confusion, picture, step)


def _send_plots(run_logger: RunLogger, run: Run, step: int) -> int:
    """Send the plots of the run at its last step; return their number. Plots sent with their counts are skipped."""
    plots = listed(run.path / "plots", "*.png")
    confused = bool(steps_with_confusion(run))
    for path in plots:
        if path.stem != "confusion" or not confused:
            run_logger.log_image(path.stem, path, step)
    return len(plots)


def _make_logger(run: Run, options: argparse.Namespace) -> RunLogger:
    """Return the logger of this run for the destination."""
    from seqtrain.training.loggers import make

    if options.to == "tensorboard":
        return make.tensorboard(directory=run.path, config=run.config)
    if options.to == "mlflow":
        given = {"experiment": options.experiment or "seqtrain", "tracking_uri": options.tracking_uri}
        given["log_model"] = options.log_model
        return make.mlflow(**given, directory=run.path, config=run.config)
    given = own_options(run)
    for name in ("mode", "project", "entity", "log_model"):
        if getattr(options, name):
            given[name] = getattr(options, name)
    return make.wandb(**given, directory=run.path, config=run.config)


def own_options(run: Run) -> dict[str, Any]:
    """Return the W&B options of the run's config; values of the wrong type are replaced by the defaults."""
    logger = run.config.get("logger")
    own = logger.get("wandb") if isinstance(logger, dict) else None
    options = yaml.safe_load((files("seqtrain.conf") / "logger" / "wandb.yaml").read_text("utf-8"))["wandb"]
    del options["_target_"]  # the run's config does not choose what is called
    if not isinstance(own, dict):
        return options
    for name, default in options.items():
        if _is_like(default, own.get(name), name):
            options[name] = own[name]
    return options


def _is_like(default: Any, value: Any, name: str) -> bool:
    """Return True if a value of a run's config, which may be untrusted, has the type of the default."""
    from seqtrain.training.loggers.wandb_logger import Axis

    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(word, str) for word in value)
    if isinstance(default, bool):
        return isinstance(value, bool)
    if name == "x":
        return value in get_args(Axis)
    return isinstance(value, str)
