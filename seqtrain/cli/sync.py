"""`seqtrain sync`: replay the records of runs into a new run of W&B, MLflow, TensorBoard or another logger."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.cli.arguments import Parser
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import listed
from seqtrain.runs.directory import Run, list_runs
from seqtrain.runs.shown import read_confusion, read_samples, steps_with_confusion, steps_with_samples
from seqtrain.sweeps.folder import is_sweep
from seqtrain.terminal import pasted

if TYPE_CHECKING:
    from seqtrain.training.loggers.base import RunLogger

Counts = dict[str, int]
"""Records, samples and plots that were sent."""


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "sync",
        "Replay what a run, or every run of a sweep, has recorded into a new run of W&B or another logger:\n"
        "valid lines of metrics.jsonl, samples, plots, config and summary. For W&B's offline runs use `wandb sync`.\n"
        "Choose and configure the logger as for train: logger=mlflow logger.mlflow.experiment=mine.",
        "seqtrain sync outputs/2026-11-21_02-04-00_sweep logger=wandb logger.wandb.project=mine",
    )
    parser.add_argument("words", nargs="+", metavar="RUN|SWEEP|logger...=VALUE")
    parser.add_config_dir()
    options = parser.parse_args(argv)
    from seqtrain.config import check

    words = [word for word in options.words if word.startswith("logger") and "=" in word]
    # All are opened before the first one is sent, so that errors are reported at once.
    paths = [Path(word) for word in options.words if word not in words]
    runs = list(itertools.chain.from_iterable(map(_runs, paths)))
    # The run's own config, which may be untrusted, does not decide where its records go.
    nodes = check.compose(words, options.config_dir).config.logger
    if not runs or not nodes:
        raise UserError("name a run or a sweep, and no logger=none" if runs else "name a run or a sweep")
    return max([_sync(run, nodes, as_json=options.json) for run in runs])


def _runs(path: Path) -> list[Run]:
    """Return the run at `path`, or the runs of the sweep; raise UserError if there are none."""
    if not is_sweep(path):
        return [Run.open(path)]
    runs = list_runs(path)
    if not runs:
        raise UserError(f"{path}: no trial of this sweep has begun; `{pasted('seqtrain', 'resume', path)}` runs them")
    return runs


def _sync(run: Run, nodes: Any, *, as_json: bool) -> int:
    """Send one run to each logger and print the counts; return the exit code."""
    from seqtrain.training.session import make_loggers

    code = 0
    try:
        run = Run.open(run.path)
        run.claim()
        for run_logger in make_loggers(nodes, run, run.config):
            counts = _send(run_logger, run)
            if run_logger.broken:  # it has reported the error itself
                code = 2
            elif as_json:
                print(json.dumps({"run": str(run.path), "to": run_logger.label, **counts}), flush=True)
            else:
                words = ", ".join(f"{name} {number:,}" for name, number in counts.items())
                print(f"{run.path} to {run_logger.label}: {words}", flush=True)
    except UserError as fault:
        code = 2
        for line in fault.lines:
            say(f"error: {line}")
    finally:
        run.close()
    return code


def _send(run_logger: RunLogger, run: Run) -> Counts:
    """Send each record, and after the last record of a step its samples and plots; return the counts."""
    from seqtrain.training.callbacks.record import point
    from seqtrain.training.callbacks.samples import log_samples

    run_logger.trouble = f"error: {run.path}: not sent, {run_logger.label} failed"
    run_logger.begin_anew()
    # Identified by line number: a step may be recorded twice, by training and by validation.
    records = [{**point(record), "record": place} for place, record in run.standing() if "step" in record]
    sampled, confused = steps_with_samples(run), steps_with_confusion(run)
    last = {record["step"]: record["record"] for record in records}  # later ones of a step replace earlier ones
    for record in records:
        step = record["step"]
        run_logger.log_metrics(record, step)
        # A step may have two records, of training and of validation: samples follow the second, as in live logging.
        if last[step] != record["record"]:
            continue
        samples = read_samples(run, step) if step in sampled else None
        if samples is not None:
            log_samples([run_logger], samples, step)
        if step in confused:
            _send_confusion(run_logger, run, step)
    plots = [path for path in listed(run.path / "plots", "*.png") if records]
    for path in plots:
        if path.stem != "confusion" or not confused:  # sent with its counts
            run_logger.log_image(path.stem, path, records[-1]["step"])
    run_logger.end(run.summary)
    return {"records": len(records), "samples": len(sampled & last.keys()), "plots": len(plots)}


def _send_confusion(run_logger: RunLogger, run: Run, step: int) -> None:
    """Draw the confusion matrix of a step again and send it: the run keeps only the newest plot."""
    from seqtrain.training.callbacks.confusion import draw_confusion

    confusion = read_confusion(run, step)
    with tempfile.TemporaryDirectory() as folder:
        picture = None if confusion is None else draw_confusion(confusion, Path(folder) / "confusion.png")
        if picture is not None:
            run_logger.log_image("confusion", picture, step)
