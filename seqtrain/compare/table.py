"""A comparison as text: the runs, the variants, the verdict."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from seqtrain.compare import held_out, importance, pareto
from seqtrain.compare.comparisons import repeated
from seqtrain.compare.entries import (
    MOST_LINES,
    Axis,
    Entry,
    count_runs,
    count_statuses,
    differing,
    few,
    quantity,
    read,
    short_names,
)
from seqtrain.compare.filters import value, written
from seqtrain.compare.folds import are_folds
from seqtrain.compare.groups import Group
from seqtrain.compare.records import COSTING, in_order
from seqtrain.compare.variants import COSTS
from seqtrain.compare.verdict import Conclusion, all_entries, conclusions, describe_status
from seqtrain.runs.directory import CONFIG
from seqtrain.sweeps.folder import Sweep, is_sweep
from seqtrain.terminal import printable

HEADS = {"name": "run", "flops": "FLOPs", "tokens_per_second": "tokens/s", "seconds": "s"}
LEFT_ALIGNED = ("run", "variant", "status")  # even if every cell looks like a number, as names of trials do
# Columns that a narrow terminal drops, in this order; then settings, the last one first.
EXPENDABLE = ("tokens_per_second", "flops", "state", "parameters", "best", "tokens", "seconds", "status")

DEFAULT_WIDTH = 120  # characters, if there is no terminal
MAX_CELL = 28  # characters of a value in the terminal
GAP = "  "  # between two columns

Row = dict[str, str]  # cells of one run or variant, by column head


def report(paths: Iterable[Path | str], *, x: Axis | None = None, tested: bool = False) -> str:
    """Return the report on the runs at these paths: tables, verdicts, and trials without a run.

    Args:
        paths: runs and sweeps.
        x: the axis on which they are compared at equal values.
        tested: compare the recorded test results instead of those of validation.
    """
    paths = list(paths)
    left_out: list[str] = []
    entries = read(paths, left_out)
    untested: list[str] = []
    if tested:
        entries, untested = held_out.with_results(entries, "best")
        left_out += untested
    found = conclusions(entries, x=x, untested=len(untested))
    return "\n".join([text(found, x=x, missing=not_run(paths)), *left_out])


def not_run(paths: Iterable[Path | str]) -> list[str]:
    """List the trials of the sweeps among these paths that left no run, each with the reason."""
    lines = []
    for path in filter(is_sweep, map(Path, paths)):
        for trial in Sweep.open(path).trials():
            if not (trial.path / CONFIG).exists():
                status = describe_status(trial.status, trial.reason)
                lines.append(printable(f"no run: {path.resolve().name}/{trial.name} {trial.label}: {status}"))
    return lines


def text(
    found: Sequence[Conclusion],
    *,
    missing: Sequence[str] = (),
    sort: str | None = None,
    x: Axis | None = None,
    costs: Sequence[pareto.Cost] = (),
    width: int | None = None,
) -> str:
    """Format the tables and sentences of all groups.

    Args:
        found: the groups.
        missing: lines on trials without a run, from `not_run`; they come last.
        sort: run, final, best, or a key as in `filters.value`, with `-` before it for the largest first.
        x: the axis on which the variants were compared at equal values.
        costs: show the Pareto front of the metric and each of these costs.
        width: characters of a line; None: the width of the terminal.
    """
    width = width or shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    folder = _shared_folder(all_entries(found))
    blocks = []
    for number, conclusion, entries in in_order(found, sort):
        group = conclusion.group
        lines = [_title(group) if len(found) == 1 else f"group {number}: {_title(group)}"]
        if group.reason:
            lines.append("not compared with group 1:")
            for reason in filter(None, [*group.reason, group.remedy]):
                lines.append(f"  {reason}")
        lines += [*group.notes, "", *_run_table(entries, group.metric, width, folder)]
        if repeated(conclusion.variants):
            lines += ["", *_variant_table(conclusion, x, width)]
        lines += ["", *_verdict(conclusion.sentences), *few(conclusion.caveats), *few(conclusion.remarks, width)]
        lines += pareto.text_lines(conclusion, costs)
        lines += importance.text_lines(importance.importances(conclusion))
        blocks.append("\n".join(map(printable, lines)))
    return "\n".join(["\n\n".join(blocks), *few(missing, width)])


def _title(group: Group) -> str:
    """Return the task, the metric's unit and split, and the number of runs, by status if any is unfinished."""
    runs = count_runs(group.entries)
    if not all(entry.finished for entry in group.entries):
        runs += f" ({count_statuses(group.entries)})"
    return f"{group.entries[0].task}, {group.unit} of {held_out.compared_figures(group)}, {runs}"


def _verdict(sentences: list[str]) -> list[str]:
    """Return the sentences on the variants nearest to the best, and the number of further ones."""
    # No sentence is cut to the width: the interval is near its end.
    return few(sentences, rest=f", {sum(' beats ' in each for each in sentences[MOST_LINES:])} of them significant")


def _run_table(entries: list[Entry], metric: str, width: int, folder: str) -> list[str]:
    """Format the table of runs: names below `folder`, differing settings, and the status if a run is unfinished."""
    settings, unit = short_names(differing(entries)), entries[0].unit(metric)
    all_finished = all(entry.finished for entry in entries)
    table = []
    for entry in entries:
        row = {"run": entry.name.removeprefix(folder)}
        for key, head in settings.items():
            row[head] = written(entry.settings.get(key, ""))
        if not all_finished:
            row["status"] = entry.status
        row[unit] = _metric(entry.metric(metric))
        if entry.evaluation is None:
            row["best"] = _metric(entry.metric(metric, checkpoint="best"))
        else:
            row["looks"] = str(entry.kept.looks())
        for name in COSTING:
            row[HEADS.get(name, name)] = _quantity(value(entry, name))
        table.append(row)
    expendable = [HEADS.get(name, name) for name in EXPENDABLE]
    return _fitted(table, [*expendable, *reversed(settings.values())], width)


def _variant_table(conclusion: Conclusion, x: Axis | None, width: int) -> list[str]:
    """Format the table of the variants, the best first."""
    name = "variant" if x is None else f"variant at equal {COSTS[x]}"
    replicates = "folds" if are_folds(conclusion.variants) else "seeds"
    table = []
    for variant in conclusion.variants:
        interval = ""
        if variant.interval:
            interval = f"{variant.interval[0]:.4f} to {variant.interval[1]:.4f}"
        row = {
            name: variant.name,
            replicates: str(len(variant.values)),
            f"mean {conclusion.group.unit}": _metric(variant.mean),
            "95 % interval": interval,
            "sd": _metric(variant.sd),
        }
        for axis in ("tokens", "flops", "seconds"):
            row[HEADS.get(axis, axis)] = _quantity(variant.costs.get(axis))
        row["state"] = _quantity(variant.state)
        table.append(row)
    return _fitted(table, ["state", "FLOPs", "tokens", "s", "sd"], width)


def _fitted(table: Sequence[Row], expendable: Sequence[str], width: int) -> list[str]:
    """Format the rows as lines. Leave out expendable columns that do not fit the width, and name them.

    Expendable columns without a value in any row are left out, too.
    """
    columns = {}
    for head in table[0]:  # a variant's name is never cut: --against needs it
        if head in expendable and not any(row[head] for row in table):
            continue
        cell = printable if head.startswith("variant") else _abbreviated
        columns[head] = [head, *(cell(row[head]) for row in table)]
    sizes = {head: max(map(len, cells)) for head, cells in columns.items()}
    left_out = []
    for head in expendable:
        if sum(sizes.values()) + len(GAP) * (len(sizes) - 1) <= width:
            break
        if sizes.pop(head, None) is not None:  # no status where all have finished
            left_out.append(head)
    lines = [""] * (1 + len(table))
    for head, size in sizes.items():
        is_text = head in LEFT_ALIGNED or not all(map(_looks_numeric, columns[head][1:]))
        pad = str.ljust if is_text else str.rjust
        for place, cell in enumerate(columns[head]):
            lines[place] += pad(cell, size) + GAP
    lines = list(map(str.rstrip, lines))
    if left_out:
        lines.append(f"(no room for {', '.join(left_out)}: --csv FILE has all)")
    return lines


def _looks_numeric(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] == "-"


def _shared_folder(entries: Sequence[Entry]) -> str:
    """Return the folder that the names of all runs begin with, and a slash; empty if there is none."""
    shared = ""
    for names in zip(
        *(entry.name.split("/")[:-1] for entry in entries), strict=False
    ):  # all first folders, then all second ones
        if len(set(names)) > 1:
            break
        shared += f"{names[0]}/"
    return shared


def _abbreviated(cell: str) -> str:
    """Return the cell without control characters, and without the middle of long text: both ends identify it."""
    cell = printable(cell)
    if len(cell) <= MAX_CELL:
        return cell
    return f"{cell[: MAX_CELL // 2 - 1]}..{cell[-MAX_CELL // 2 + 1 :]}"


def _metric(found: float | None) -> str:
    return "" if found is None else f"{found:.4f}"


def _quantity(found: float | None) -> str:
    return "" if found is None else quantity(found)
