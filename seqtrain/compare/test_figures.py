"""Comparisons by the test figures that `seqtrain evaluate` has kept in the runs, with their caveats."""

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


def tested(
    entries: Sequence[Entry],
    checkpoint: WeightsOf,
    test_set: str | None = None,  # noqa: PT028 (it is no test)
) -> tuple[list[Entry], list[str]]:
    """Return the runs that have kept test figures, each with its newest ones of a checkpoint.

    Args:
        entries: the runs of a comparison.
        checkpoint: whose weights were to be measured.
        test_set: which of several test sets, by its name; None: that of runs with one.

    Returns:
        These runs, and a line for each other one, with the command that makes its figures.

    Raises:
        UserError: no run has them.
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
    # Named sets have no figure of all of them: which one is meant must be said.
    names = {one.test_set for entry in entries for one in entry.kept.evaluations if one.test_set is not None}
    if not found and names - {test_set}:
        missing.append(f"figures of named test sets are kept: --test-set {printable(' or '.join(sorted(names)))}")
    # As errors and not as remarks: without a run there is no table to stand below.
    if not found:
        raise UserError("--split test: no run has test figures that could be compared", *few(missing))
    return found, [f"left out: {line}" for line in missing]


def compared_figures(group: Group) -> str:
    """Return the split of a group's figures and, for kept ones, the checkpoint."""
    evaluation = group.entries[0].evaluation
    if evaluation is None:
        return group.split
    split = group.split
    if evaluation.test_set is not None:
        split = printable(f"test set {evaluation.test_set}")
    return f"{split} ({evaluation.checkpoint} checkpoint)"


def columns(entry: Entry, metric: str) -> dict[str, Any]:
    """Return a run's kept test figure in the metric, for tables that machines read; its values are None without one.

    Without `--split test`, it is the newest figure of the best checkpoint.
    """
    evaluation = entry.evaluation or entry.kept.newest(TEST, "best")
    found: dict[str, Any] = dict.fromkeys(("test", "test_checkpoint", "test_step", "test_date"))
    if evaluation is not None:
        found["test"] = evaluation.metrics.get(metric)
        found["test_checkpoint"] = evaluation.checkpoint
        found["test_step"] = evaluation.step
        found["test_date"] = evaluation.date
    return found | {"test_looks": entry.kept.looks()}


def test_mean(entries: Sequence[Entry], metric: str) -> float | None:
    """Return the mean of the runs' kept test figures; None if a run has none of its checkpoint as it is now."""
    values = []
    for entry in entries:
        evaluation = entry.evaluation or entry.kept.newest(TEST, "best")
        if evaluation is None or _reason(entry, evaluation, evaluation.checkpoint):
            return None
        values.append(number(evaluation.metrics.get(metric)))
    return mean_of(values)


def _reason(entry: Entry, evaluation: Evaluation | None, checkpoint: WeightsOf) -> str:
    """Return why a run has no comparable test figures, with the command that makes them; empty if it has them."""
    words = ["seqtrain", "evaluate", entry.path, *entry.trust_words, "--split", TEST]
    if checkpoint != "best":
        words += ["--checkpoint", checkpoint]
    remedy = f"`{pasted(*words)}` makes them"
    if evaluation is None:
        if not entry.finished:  # it would not count with them either
            return f"{entry.status}, and no test figures are kept"
        return f"no test figures of its {checkpoint} checkpoint are kept; {remedy}"
    step = entry.summary.best.get("step") if checkpoint == "best" else entry.summary.steps
    if step is not None and step != evaluation.step:  # the run went on after it was evaluated
        return (
            f"its test figures are of step {evaluation.step:,}, and its {checkpoint} checkpoint is of step {step:,} by "
            f"now; {remedy} anew"
        )
    return ""
