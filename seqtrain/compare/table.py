"""A comparison as text: a table of the runs, one of the variants, and the verdict; and the same as rows for
machines."""

from __future__ import annotations

import csv
import io
import itertools
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from seqtrain.compare.entries import Axis, Entry, Which, differing, read, short_names, standing
from seqtrain.compare.guard import Group
from seqtrain.compare.selection import ordered, resolved, value, written
from seqtrain.compare.verdict import COSTS, Conclusion, because, conclusions, quantity
from seqtrain.runs.directory import CONFIG
from seqtrain.sweeps.folder import Sweep, is_sweep
from seqtrain.terminal import printable

COSTING = ("tokens", "flops", "seconds", "tokens_per_second", "parameters")
HEADS = {"name": "run", "flops": "FLOPs", "tokens_per_second": "tokens/s", "seconds": "s"}
EXPENDABLE = ("tokens_per_second", "flops", "parameters", "best", "tokens", "seconds", "status")
"""Columns that a narrow terminal does without, the first first; then settings, the last first."""

WIDTH = 120  # where there is no terminal to ask
MOST_SENTENCES = 12  # of one kind, of one group, in the terminal
LONGEST = 28  # characters of a value in the terminal


def report(paths: Iterable[Path | str], *, x: Axis | None = None) -> str:
    """Everything about the runs at these paths: tables, verdicts, and what did not run."""
    paths = list(paths)
    left_out: list[str] = []
    found = conclusions(read(paths, left_out), x=x)
    return "\n".join([text(found, x=x, missing=not_run(paths)), *left_out])


def not_run(paths: Iterable[Path | str]) -> list[str]:
    """The trials of the sweeps among these paths that left no run, and why."""
    lines = []
    for path in filter(is_sweep, map(Path, paths)):
        for trial in Sweep.open(path).trials():
            if not (trial.path / CONFIG).exists():
                name, how = f"{path.resolve().name}/{trial.name}", because(trial.status, trial.reason)
                lines.append(printable(f"no run: {name} {trial.label}: {how}"))
    return lines


def text(
    found: Sequence[Conclusion],
    *,
    missing: Sequence[str] = (),
    sort: str | None = None,
    x: Axis | None = None,
    width: int | None = None,
) -> str:
    """The tables and sentences of all groups, and last what is `missing`, as `not_run` tells it.

    `sort`: run, final, best, or a key as of `selection.value`, with `-` before it for the largest first.
    """
    width = width or shutil.get_terminal_size((WIDTH, 24)).columns
    folder = _folder([entry for conclusion in found for entry in conclusion.group.entries])
    blocks = []
    for number, (conclusion, entries) in enumerate(zip(found, _sorted(found, sort), strict=True), 1):
        group = conclusion.group
        runs = "1 run" if len(group.entries) == 1 else f"{len(group.entries)} runs"
        if not all(entry.finished for entry in entries):
            runs += f" ({standing(entries)})"
        title = f"{group.entries[0].task}, {group.unit} of validation, {runs}"
        lines = [title if len(found) == 1 else f"group {number}: {title}"]
        if group.reason:
            lines += ["not compared with group 1:", *(f"  {reason}" for reason in group.reason)]
        lines += [*group.notes, "", *_runs(entries, group.metric, width, folder)]
        if any(len(variant.values) > 1 for variant in conclusion.variants):
            lines += ["", *_arms(conclusion, x, width)]
        lines += ["", *_verdict(conclusion), *_few(conclusion.remarks, width)]
        blocks.append("\n".join(map(printable, lines)))
    return "\n".join(["\n\n".join(blocks), *_few(missing, width)])


def rows(found: Sequence[Conclusion], *, sort: str | None = None) -> list[dict[str, Any]]:
    """One row a run: its group, how it stands, the settings that differ between any two, metrics and costs."""
    keys = differing([entry for conclusion in found for entry in conclusion.group.entries])
    return [
        {
            "group": number,
            **{name: value(entry, name) for name in ("name", "label", "sweep", "status", "reason")},
            **{key: entry.settings.get(key) for key in keys},
            "metric": conclusion.group.metric,
            "final": entry.metric(conclusion.group.metric),
            "best": entry.metric(conclusion.group.metric, which="best"),
            **{name: value(entry, name) for name in ("steps", *COSTING)},
        }
        for number, (conclusion, entries) in enumerate(zip(found, _sorted(found, sort), strict=True), 1)
        for entry in entries
    ]


def record(found: Sequence[Conclusion], *, sort: str | None = None) -> dict[str, Any]:
    """All of it as plain values: the rows, and of each group its variants and its verdict."""
    return {
        "runs": rows(found, sort=sort),
        "groups": [
            {
                "group": number,
                "metric": conclusion.group.metric,
                "mode": conclusion.group.mode,
                "reason": conclusion.group.reason,
                "notes": conclusion.group.notes,
                "variants": [
                    {
                        "name": variant.name,
                        "runs": [entry.name for entry in variant.entries],
                        "values": list(variant.values),
                        "mean": variant.mean,
                        "sd": variant.sd,
                        "interval": variant.interval and list(variant.interval),
                        "costs": variant.costs,
                    }
                    for variant in conclusion.variants
                ],
                "verdict": conclusion.sentences,
                "remarks": conclusion.remarks,
            }
            for number, conclusion in enumerate(found, 1)
        ],
    }


def as_csv(table: Sequence[dict[str, Any]]) -> str:
    """Rows as comma-separated values, with a head."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if cell is None else cell for key, cell in row.items()} for row in table)
    return out.getvalue()


def _verdict(conclusion: Conclusion) -> list[str]:
    """The sentences on the variants that come nearest to the best, and how many there are beyond them."""
    told = conclusion.sentences
    if len(told) <= MOST_SENTENCES:
        return told
    beaten = sum(" beats " in sentence for sentence in told[MOST_SENTENCES:])
    return [*told[:MOST_SENTENCES], f"and {len(told) - MOST_SENTENCES} more, {beaten} of them beaten: --json has all"]


def _few(lines: Sequence[str], width: int) -> list[str]:
    """The first of the lines, cut to the width, and how many there are beyond them."""
    cut = [line if len(line) <= width else f"{line[: width - 2]}.." for line in lines[:MOST_SENTENCES]]
    return cut if len(cut) == len(lines) else [*cut, f"and {len(lines) - len(cut)} more: --json has all"]


def _sorted(found: Sequence[Conclusion], sort: str | None) -> list[list[Entry]]:
    """The runs of each group in order: by the key that is asked for, or the best first."""
    if sort is None:
        return [_by_metric(made.group, "final", descending=made.group.mode == "max") for made in found]
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    if name == "final" or name == "best":
        return [_by_metric(made.group, name, descending=descending) for made in found]
    if name == "run":
        return [ordered(made.group.entries, lambda entry: entry.name, descending=descending) for made in found]
    key = resolved([entry for made in found for entry in made.group.entries], name, f"--sort {sort}")
    return [ordered(made.group.entries, lambda entry: value(entry, key), descending=descending) for made in found]


def _by_metric(group: Group, which: Which, *, descending: bool) -> list[Entry]:
    return ordered(group.entries, lambda entry: entry.metric(group.metric, which=which), descending=descending)


def _runs(entries: list[Entry], metric: str, width: int, folder: str) -> list[str]:
    """The table of the runs, named from `folder` on: settings that differ, a status where one has not finished."""
    settings = differing(entries)
    heads = {**HEADS, **short_names(settings), "final": entries[0].unit(metric)}
    columns: dict[str, list[str]] = {"name": [entry.name.removeprefix(folder) for entry in entries]}
    columns |= {key: [written(entry.settings.get(key, "")) for entry in entries] for key in settings}
    if not all(entry.finished for entry in entries):
        columns["status"] = [entry.status for entry in entries]
    columns |= {"final": [], "best": []}
    for entry in entries:
        columns["final"].append(_metric(entry.metric(metric)))
        columns["best"].append(_metric(entry.metric(metric, which="best")))
    columns |= {name: [_quantity(value(entry, name)) for entry in entries] for name in COSTING}
    order = [*(name for name in EXPENDABLE if name in columns), *reversed(settings)]
    return _fitted(
        {heads.get(key, key): cells for key, cells in columns.items()}, [heads.get(key, key) for key in order], width
    )


def _arms(conclusion: Conclusion, x: Axis | None, width: int) -> list[str]:
    """The table of the variants, the best first."""
    variants = conclusion.variants
    at = "" if x is None else f" at equal {COSTS[x]}"
    columns = {
        f"variant{at}": [variant.name for variant in variants],
        "seeds": [str(len(variant.values)) for variant in variants],
        f"mean {conclusion.group.unit}": [_metric(variant.mean) for variant in variants],
        "95 % interval": [
            f"{variant.interval[0]:.4f} to {variant.interval[1]:.4f}" if variant.interval else ""
            for variant in variants
        ],
        "sd": [_metric(variant.sd) for variant in variants],
        "tokens": [_quantity(variant.costs.get("tokens")) for variant in variants],
        "FLOPs": [_quantity(variant.costs.get("flops")) for variant in variants],
        "s": [_quantity(variant.costs.get("seconds")) for variant in variants],
    }
    return _fitted(columns, ["FLOPs", "tokens", "s", "sd"], width)


def _fitted(columns: dict[str, list[str]], expendable: Sequence[str], width: int) -> list[str]:
    """The columns side by side, without those of the expendable that the width has no room for; says which."""
    cut = {head: [_short(cell) for cell in cells] for head, cells in columns.items()}
    left_out = []
    for head in expendable:
        if sum(map(_width, cut.items())) - 2 <= width:
            break
        del cut[head]
        left_out.append(head)
    lines = [""] * (1 + len(next(iter(cut.values()))))
    for head, cells in cut.items():
        size, right = _width((head, cells)) - 2, head not in TEXTS and all(map(_numeric, cells))
        for line, cell in enumerate([head, *cells]):
            lines[line] += (cell.rjust(size) if right else cell.ljust(size)) + "  "
    lines = [line.rstrip() for line in lines]
    return [*lines, f"(no room for {', '.join(left_out)}: --csv FILE has all)"] if left_out else lines


TEXTS = ("run", "variant", "status")


def _width(column: tuple[str, list[str]]) -> int:
    return max(len(cell) for cell in (column[0], *column[1])) + 2


def _numeric(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] == "-"


def _folder(entries: Sequence[Entry]) -> str:
    """The folder that all their names begin with, and a slash; empty where there is none."""
    places = zip(*(entry.name.split("/")[:-1] for entry in entries), strict=False)  # the first parts, the second, ...
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, places)
    return "".join(f"{parts[0]}/" for parts in shared)


def _short(cell: str) -> str:
    cell = printable(cell)
    return cell if len(cell) <= LONGEST else f"{cell[: LONGEST // 2 - 1]}..{cell[-LONGEST // 2 + 1 :]}"


def _metric(found: float | None) -> str:
    return "" if found is None else f"{found:.4f}"


def _quantity(found: float | None) -> str:
    return "" if found is None else quantity(found)
