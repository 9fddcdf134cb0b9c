"""Evaluations on a run's test split: each is kept in the run and counted, and the count is printed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seqtrain.errors import UserError
from seqtrain.runs.evaluations import EVALUATIONS, Evaluation, Kept, keep, kept
from seqtrain.runs.git_commit import commit

SPENT = "a choice made after the first time is no longer measured by it"


def kept_in_run(result: dict[str, Any], batch_size: int | None) -> tuple[dict[str, Any], list[str]]:
    """Keep the result of `evaluate` on the test split in the run's directory.

    Args:
        result: Result of `seqtrain.cli.evaluate.evaluate`; its optional `test_set` is the name of the set.
        batch_size: Option of the command.

    Returns:
        The result with `look`, the number of this evaluation, and `kept`, True if the run recorded it; and lines to
        print. If the run cannot be written, only the count is lost.
    """
    run = Path(result["run"])
    evaluation = Evaluation(
        split=result["split"],
        checkpoint=result["checkpoint"],
        step=result["step"],
        metrics=result["metrics"],
        hash=result["hash"],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(Path.cwd()),
        options={
            "batch_size": batch_size,
            "eval_lanes": result["eval_lanes"],
            "examples": result["examples"],
            "tokens": result["tokens"],
        },
        leak=result.get("leak"),
        baselines=result.get("baselines", {}),
        test_set=result.get("test_set"),
    )
    # The result is printed even if the file cannot be written: the test split has been evaluated.
    before, reason = Kept(), ""
    try:
        before = kept(run)
        keep(run, evaluation)
    except OSError as error:
        reason = error.strerror or str(error)
    except UserError as error:
        reason = str(error)
    # Counted from the file and not from memory: looks of other days and people are looks, too.
    test_set = evaluation.test_set
    look = before.looks(test_set=test_set) + 1
    name = "test split" if test_set is None else f"test set {test_set}"
    lines = [f"{name} evaluated {look} time{'s' * (look > 1)}"]
    if look > 1:
        lines[0] += f" (first on {before.of('test', test_set)[0].date[:10]}): {SPENT}"
    if before.unreadable:
        lines.append(
            f"{run / EVALUATIONS}: {before.unreadable} lines are torn or not what evaluate writes: they do not count"
        )
    if reason:
        lines.append(
            f"nothing was kept in {run} ({reason}): the look will not be counted, and compare will not know its figures"
        )
    return {**result, "look": look, "kept": not reason}, lines
