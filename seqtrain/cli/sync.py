"""`seqtrain sync`: sends what runs have recorded to W&B, MLflow or TensorBoard, and nothing twice."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml

from seqtrain.cli.arguments import Parser, say
from seqtrain.errors import UserError
from seqtrain.files.atomic import listed
from seqtrain.files.checked import open_checked
from seqtrain.runs.directory import Run
from seqtrain.runs.listing import list_runs
from seqtrain.runs.records import LONGEST
from seqtrain.sweeps.folder import is_sweep
from seqtrain.terminal import pasted

if TYPE_CHECKING:
    from seqtrain.training.loggers.base import RunLogger

OF = {"mode": "wandb", "project": "wandb", "entity": "wandb", "experiment": "mlflow", "tracking_uri": "mlflow"}
"""Options, and the destination that each is for."""


@dataclass(frozen=True)
class Sent:
    """What of a run was not there yet."""

    records: int
    samples: int
    plots: int

    def words(self) -> str:
        """For a person."""
        counts = [f"{count:,} {name.removesuffix('s') if count == 1 else name}" for name, count in asdict(self).items()]
        return ", ".join(counts) if any(asdict(self).values()) else "nothing new"


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "sync",
        "Send what a run, or every run of a sweep, has recorded to W&B, MLflow or TensorBoard: metrics.jsonl as it\n"
        "stands, samples, plots, config and summary. What is there already is not sent again. Where a run went while\n"
        "it trained is asked of its own config, but for the address of an MLflow server, which only you give.",
        "seqtrain sync outputs/2026-11-21_02-04-00_sweep --to wandb",
    )
    parser.add_argument("paths", nargs="+", metavar="RUN|SWEEP", type=Path)
    parser.add_argument("--to", default="wandb", choices=("wandb", "mlflow", "tensorboard"))
    parser.add_argument("--mode", choices=("online", "offline"), help="of W&B; else online if that can be")
    parser.add_argument("--project", help="of W&B; else the run's own")
    parser.add_argument("--entity", help="of W&B; else the run's own")
    parser.add_argument("--experiment", help="of MLflow; else seqtrain")
    parser.add_argument("--tracking-uri", help="of MLflow; else MLFLOW_TRACKING_URI, or sqlite beside the runs")
    options = parser.parse_args(argv)
    _refuse_useless(options)
    runs = [run for path in options.paths for run in _runs(path)]
    destination = _where(options)
    codes = [_synced(run, options, destination) for run in runs]
    return max(codes)


def _refuse_useless(options: argparse.Namespace) -> None:
    useless = [name for name, where in OF.items() if getattr(options, name) is not None and where != options.to]
    if useless:
        raise UserError(*(f"--{name.replace('_', '-')}: is for --to {OF[name]}; leave it out" for name in useless))


def _runs(path: Path) -> list[Run]:
    """The run at `path`, or those of the sweep; UserError where there is none."""
    if not is_sweep(path):
        return [Run.open(path)]
    runs = list_runs(path)
    if not runs:
        raise UserError(f"{path}: no trial of this sweep has begun; `{pasted('seqtrain', 'resume', path)}` runs them")
    return runs


def _where(options: argparse.Namespace) -> str:
    """The destination in words; of W&B its mode is settled here, once for all runs."""
    if options.to != "wandb":
        return {"mlflow": "MLflow", "tensorboard": "TensorBoard"}[options.to]
    from seqtrain.training.loggers.wandb_logger import wandb_mode

    options.mode = wandb_mode(options.mode or "auto", option="--mode ")
    if options.mode == "disabled":
        raise UserError("WANDB_MODE=disabled: W&B takes nothing; unset it or use --mode offline")
    return f"W&B {options.mode}"


def _synced(run: Run, options: argparse.Namespace, destination: str) -> int:
    """Sends one run and says so; the exit code."""
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
        print(f"{run.path}: {sent.words()} to {destination}", flush=True)
    return 0


def _send(run: Run, options: argparse.Namespace) -> Sent | None:
    """Sends what of the run is missing there; None where that failed."""
    from seqtrain.training.callbacks.record import point
    from seqtrain.training.loggers.wandb_logger import leave_out

    run = Run.open(run.path)
    run.claim()
    try:
        run_logger = _sink(run, options)
        run_logger.trouble = f"error: {run.path}: not sent, {run_logger.label} failed"
        records = [{**point(record), "record": place} for place, record in run.standing() if "step" in record]
        missing = run_logger.missing(records)
        samples = _send_records(run_logger, run, missing)
        plots = listed(run.path / "plots", "*.png") if missing else []
        for path in plots:
            run_logger.log_image(path.stem, path, records[-1]["step"])
        run_logger.end(run.summary)
        if run_logger.broken:
            return None
        if options.to == "wandb" and options.mode == "online":
            leave_out(run.path)
        return Sent(len(missing), samples, len(plots))
    finally:
        run.close()


def _send_records(run_logger: RunLogger, run: Run, records: list[dict[str, Any]]) -> int:
    """Each record, and after the last one of a step what the model wrote then; how many of those there were."""
    samples = {
        int(found[1]): path
        for path in listed(run.path / "samples", "step-*.txt")
        if (found := re.fullmatch(r"step-(\d{1,12})", path.stem))
    }
    last = {record["step"]: record["record"] for record in records}
    for record in records:
        step = record["step"]
        run_logger.log_metrics(record, step)
        if step in samples and last[step] == record["record"]:
            with open_checked(samples[step]) as file:
                run_logger.log_text("samples", file.read(LONGEST).decode("utf-8", "replace"), step)
    return len(samples.keys() & last.keys())


def _sink(run: Run, options: argparse.Namespace) -> RunLogger:
    """The destination of this run."""
    from seqtrain.training.loggers import make

    if options.to == "tensorboard":
        return make.tensorboard(directory=run.path, config=run.config)
    if options.to == "mlflow":
        given = {"experiment": options.experiment or "seqtrain", "tracking_uri": options.tracking_uri}
        return make.mlflow(**given, directory=run.path, config=run.config)
    given = {name: getattr(options, name) for name in ("mode", "project", "entity") if getattr(options, name)}
    return make.wandb(**{**own_options(run), **given}, directory=run.path, config=run.config)


def own_options(run: Run) -> dict[str, Any]:
    """What the run's config says of W&B, where it is of the right kind, else what ours says."""
    from seqtrain.training.loggers.wandb_logger import Axis

    logger = run.config.get("logger")
    own = logger.get("wandb") if isinstance(logger, dict) else None
    shipped = yaml.safe_load((files("seqtrain.conf") / "logger" / "wandb.yaml").read_text("utf-8"))["wandb"]
    found = {}
    for name, value in shipped.items():
        kept = own.get(name) if isinstance(own, dict) else None
        text = isinstance(kept, str) and not isinstance(value, list) and (name != "x" or kept in get_args(Axis))
        texts = isinstance(kept, list) and isinstance(value, list) and all(isinstance(word, str) for word in kept)
        found[name] = kept if text or texts else value
    del found["_target_"]
    return found
