"""Comparisons by the test results that `seqtrain evaluate` has recorded in the runs, with their caveats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seqtrain.compare.entries import Entry, few, mean_of, number
from seqtrain.compare.groups import Group
from seqtrain.errors import UserError
from seqtrain.runs.evaluations import Evaluation, WeightsOf
from seqtrain.terminal import pasted, printable

TEST = "test"


def with_results(
    entries: Sequence[Entry], checkpoint: WeightsOf, test_set: str | None = None
) -> tuple[list[Entry], list[str]]:
    """Return the runs that have recorded test results, each with the newest results of a checkpoint.

    Args:
        entries: the runs of a comparison.
        checkpoint: the checkpoint whose weights were measured.
        test_set: the name of one of several test sets; None: the only test set of a run.

    Returns:
        These runs, and a line for each other run, with the command that produces its results.

    Raises:
        UserError: no run has such results.
    """
    found = []
    missing = []
    for entry in entries:
        evaluation = entry.kept.newest(TEST, checkpoint, test_set)
        reason = _reason(entry, evaluation, checkpoint)
        if reason:
            missing.append(printable(f"{entry.name}: {reason}"))
        else:
            found.append(replace(entry, evaluation=evaluation))
    # Named test sets have no common result: the user must choose one.
    names = {one.test_set for entry in entries for one in entry.kept.evaluations if one.test_set is not None}
    if not found and names - {test_set}:
        missing.append(f"results of named test sets are recorded: --test-set {printable(' or '.join(sorted(names)))}")
    # Without any run there is no table to put remarks below, so these are errors.
    if not found:
        raise UserError("--split test: no run has comparable test results", *few(missing))
    return found, [f"left out: {line}" for line in missing]


def compared_figures(group: Group) -> str:
    """Return the split of a group's results and, for recorded evaluations, the checkpoint."""
    evaluation = group.entries[0].evaluation
    if evaluation is None:
        return group.split
    split = group.split
    if evaluation.test_set is not None:
        split = printable(f"test set {evaluation.test_set}")
    return f"{split} ({evaluation.checkpoint} checkpoint)"


def columns(entry: Entry, metric: str) -> dict[str, Any]:
    """Return a run's recorded test result in the metric, for machine-readable tables; None if there is none.

    Without `--split test`, use the newest result of the best checkpoint.
    """
    evaluation = entry.evaluation or entry.kept.newest(TEST, "best")
    found: dict[str, Any] = dict.fromkeys(("test", "test_checkpoint", "test_step", "test_date"))
    if evaluation is not None:
        found["test"] = evaluation.metrics.get(metric)
        found["test_checkpoint"] = evaluation.checkpoint
        found["test_step"] = evaluation.step
        found["test_date"] = evaluation.date
    return found | {"test_looks": entry.kept.looks()}


def held_out_mean(entries: Sequence[Entry], metric: str) -> float | None:
    """Return the mean of the runs' recorded test results; None if a run has none for its current checkpoint."""
    values = []
    for entry in entries:
        evaluation = entry.evaluation or entry.kept.newest(TEST, "best")
        if evaluation is None or _reason(entry, evaluation, evaluation.checkpoint):
            return None
        values.append(number(evaluation.metrics.get(metric)))
    return mean_of(values)


def _reason(entry: Entry, evaluation: Evaluation | None, checkpoint: WeightsOf) -> str:
    """Return why a run has no comparable test results, with the command that makes them; empty if it has them."""
    words = ["seqtrain", "evaluate", entry.path, *entry.trust_words, "--split", TEST]
    if checkpoint != "best":
        words += ["--checkpoint", checkpoint]
    remedy = f"`{pasted(*words)}` measures them"
    if evaluation is None:
        if not entry.finished:  # it would not count even with test results
            return f"{entry.status}, and no test results are recorded"
        return f"no test results of its {checkpoint} checkpoint are recorded; {remedy}"
    step = entry.summary.best.get("step") if checkpoint == "best" else entry.summary.steps
    if step is not None and step != evaluation.step:  # the run was continued after the evaluation
        return (
            f"its test results are of step {evaluation.step:,}, but its {checkpoint} checkpoint is now of step "
            f"{step:,}; {remedy} again"
        )
    return ""
