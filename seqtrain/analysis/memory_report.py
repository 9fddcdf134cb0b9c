"""Report on the memory of a run: open it, measure it, and write one record with its lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.analysis.measured import Measured, written
from seqtrain.config.ranges import Range, check_number
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists

if TYPE_CHECKING:
    from seqtrain.analysis.memory import Memory

CONTEXT = Range(2, 2**16, whole=True)
TARGETS = Range(100, 1_000_000, whole=True)  # fewer are not informative
TOLERANCE = Range(1e-6, 10)
UNIT = "nats a token"


def measured(
    run: str,
    out: Path,
    *,
    split: Literal["train", "validation", "test"] = "validation",
    checkpoint: str = "best",
    context: int | None = None,
    targets: int = 2000,
    tolerance: float = 0.01,
) -> Measured:
    """Measure how much context a run uses and what its carried state contributes; write the record and its plots.

    Args:
        run: The run's directory.
        out: Folder of the record and the plots.
        split: Split whose text is read.
        checkpoint: "best" or "last".
        context: Longest context, in tokens. None: 4 times k2, from 128 to 1024.
        targets: Number of tokens that are predicted from each context.
        tolerance: Difference in nats per token within which two losses count as equal.

    Raises:
        UserError: The caller can fix it.
    """
    check_number("context", context, CONTEXT)
    check_number("targets", targets, TARGETS)
    check_number("tolerance", tolerance, TOLERANCE)
    from seqtrain.analysis.memory import draw, measure
    from seqtrain.experiment.data import open_with_data

    # Raise faults of the config before reading data.
    _check_task(run)
    out.mkdir(parents=True, exist_ok=True)  # fail on an unwritable folder before a minute's work
    notes: list[str] = []  # printed after all checks have passed
    opened, data = open_with_data(run, split, checkpoint, note=notes.append)
    stream: Any = data.batcher(split)
    task: Any = opened.task  # `_check_task` has checked that it has a loss for each token
    memory = measure(
        opened.model,
        task,
        stream,
        data.tbptt,
        context=context,
        num_targets=targets,
        tolerance=tolerance,
    )
    for line in notes:
        say(line)
    about = {
        "run": run,
        "split": split,
        "checkpoint": checkpoint,
        "step": opened.step,
        "hash": data.rows[split].hash,
    }
    record = {**about, **memory.record()}
    pictures = draw(memory, out, UNIT)
    return written(out, "memory", record, _lines(memory), list(pictures))


def _check_task(path: str) -> None:
    """Raise UserError if the run's task has no loss for each token. Called before data is read."""
    from seqtrain.analysis.context import HasTokenLosses
    from seqtrain.inference.opened import checked_config
    from seqtrain.runs.directory import Run
    from seqtrain.training.model_and_task import task_class

    if "=" in path and not exists(Path(path)):
        raise UserError(f"{path}: expected the folder of a run, not an override; train a run and give its folder")
    task = task_class(checked_config(Run.open(path)))
    if not isinstance(task, HasTokenLosses):
        raise UserError(
            f"run {path}: task={task.name()} has no loss for each token of a stream; give a run of task=next_token"
        )


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
