"""`seqtrain memory`: measure how much context a run uses, what its carried state adds, and if k2 is long enough."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.cli.evaluate import open_with_data
from seqtrain.cli.measured import Measured, written
from seqtrain.config.ranges import Range
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists

if TYPE_CHECKING:
    from seqtrain.analysis.memory import Memory

MAX_CONTEXT = 2**16
MIN_TARGETS, MAX_TARGETS = 100, 1_000_000  # fewer tell nothing
UNIT = "nats a token"


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    return measured(argv).tell()


def measured(argv: list[str]) -> Measured:
    """Measure the memory of a run and return the result, which `main` prints."""
    parser = Parser(
        "memory",
        "How much context a run uses, what its carried state gives, and what that says of k2.\n"
        "The same tokens are predicted from 1, 2, 4, ... tokens before them; and the text is read as evaluation does,\n"
        "with the state carried from chunk to chunk and with each chunk begun from nothing. Takes task=next_token.",
        "seqtrain memory outputs/2026-11-21_02-04-00_next_token_lstm --context 512",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--split", default="validation", choices=("train", "validation", "test"))
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    parser.add_argument(
        "--context",
        type=bounded(Range(2, MAX_CONTEXT, whole=True)),
        metavar="N",
        help="the longest context, in tokens (default: 4 times k2, from 128 to 1024)",
    )
    parser.add_argument(
        "--targets",
        type=bounded(Range(MIN_TARGETS, MAX_TARGETS, whole=True)),
        default=2000,
        metavar="N",
        help="tokens that are predicted from each context (default: 2000)",
    )
    parser.add_argument(
        "--tolerance",
        type=bounded(Range(1e-6, 10)),
        default=0.01,
        metavar="NATS",
        help="losses this close count as one (default: 0.01)",
    )
    parser.add_out("outputs/memory")
    options = parser.parse_args(argv)

    from seqtrain.analysis.memory import measure

    # Faults that the config alone shows are raised before data are read.
    _check_task(options.run)
    options.out.mkdir(parents=True, exist_ok=True)  # a place that cannot be written is told before a minute's work
    notes: list[str] = []  # said when nothing can be refused any more
    opened, data = open_with_data(options.run, options.split, options.checkpoint, note=notes.append)
    stream: Any = data.batcher(options.split)
    task: Any = opened.task  # `_check_task` has seen that it has a loss of each token
    memory = measure(
        opened.model,
        task,
        stream,
        data.tbptt,
        context=options.context,
        num_targets=options.targets,
        tolerance=options.tolerance,
    )
    for line in notes:
        say(line)
    about = {
        "run": str(options.run),
        "split": options.split,
        "checkpoint": options.checkpoint,
        "step": opened.step,
        "hash": data.rows[options.split].hash,
    }
    return _written(memory, about, options)


def _check_task(path: str) -> None:
    """Raise UserError if the run's task has no loss of each token, before its data are read."""
    from seqtrain.analysis.context import HasTokenLosses
    from seqtrain.inference.opened import checked_config
    from seqtrain.runs.directory import Run
    from seqtrain.training.model_and_task import task_class

    if "=" in path and not exists(Path(path)):
        raise UserError(f"{path}: memory is measured of a run, and this is an override; train one, and give its folder")
    task = task_class(checked_config(Run.open(path)))
    if not isinstance(task, HasTokenLosses):
        raise UserError(
            f"run {path} is of task={task.name()}, which has no loss of each token of a stream; memory takes next_token"
        )


def _written(memory: Memory, about: dict[str, Any], options: Namespace) -> Measured:
    """Write numbers and pictures; return the result."""
    from seqtrain.analysis.memory import draw

    record = {**about, **memory.record()}
    pictures = draw(memory, options.out, UNIT)
    return written(options.out, "memory", record, _lines(memory), list(pictures), options)


def _lines(memory: Memory) -> list[str]:
    """Return the losses as a table, followed by the conclusions."""
    curves = memory.curves()
    lines = [f"context  {UNIT}, of the same {memory.contexts.losses.shape[1]:,} tokens"]
    for row in curves["by_context"]:
        lines.append(f"{row['context']:7}  {row['loss']:.4f}")
    if curves["since_reset"]:
        lines += ["", f"tokens since the state began  carried  from nothing  ({UNIT})"]
    for row in curves["since_reset"]:
        if row["tokens"]:
            span = f"{row['from']} to {row['to']}"
            lines.append(f"{span:>28}  {row['carried']:7.4f}  {row['fresh']:12.4f}")
    return [*lines, "", *memory.verdict()]
