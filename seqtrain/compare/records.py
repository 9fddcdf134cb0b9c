"""A comparison as plain values for machines: rows of runs, and records of groups and variants."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from seqtrain.compare import after_search, fold_baselines, kept_figures, pareto
from seqtrain.compare.entries import Entry, differing
from seqtrain.compare.selection import ordered, resolved, value
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import Conclusion, all_entries

IDENTITY = ("name", "label", "sweep", "status", "reason")  # keys of a run's row that say which it is
COSTING = ("tokens", "flops", "seconds", "tokens_per_second", "parameters")


def rows(
    found: Sequence[Conclusion],
    *,
    sort: str | None = None,
    costs: Sequence[pareto.Cost] = (),
    beside: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return one row a run: its group, its status, the settings that differ between any two, metrics and costs.

    Args:
        found: the groups.
        sort: the key to sort by; None: the best first.
        costs: costs for which a row also has its variant's standing on the Pareto front, as in `pareto.Standing`.
        beside: keys of further columns beside the metric.
    """
    settings = differing(all_entries(found))
    is_tested = any(entry.kept.looks() for entry in all_entries(found))
    table = []
    for number, conclusion, entries in in_order(found, sort):
        metric = conclusion.group.metric
        standings = pareto.columns(conclusion, costs) if costs else {}
        for entry in entries:
            row: dict[str, Any] = {"group": number}
            for name in IDENTITY:
                row[name] = value(entry, name)
            for key in settings:
                row[key] = entry.settings.get(key)
            row["metric"] = metric
            for checkpoint in ("final", "best"):
                row[checkpoint] = entry.metric(metric, "validation", checkpoint)
            row |= dict.fromkeys(beside)
            if is_tested:
                row |= kept_figures.columns(entry, metric)
            for name in ("steps", *COSTING):
                row[name] = value(entry, name)
            row |= standings.get(entry, {})
            table.append(row)
    return table


def record(found: Sequence[Conclusion], *, sort: str | None = None) -> dict[str, Any]:
    """Return the rows as plain values and, for each group, its variants, verdict, fronts and options."""
    records = group_records(found)
    for one, conclusion in zip(records, found, strict=True):
        one |= after_search.record(conclusion)
    return {"runs": rows(found, sort=sort), "groups": records}


def group_records(found: Sequence[Conclusion]) -> list[dict[str, Any]]:
    """Return the variants and the verdict of each group as plain values."""
    records = []
    for number, conclusion in enumerate(found, 1):
        group = conclusion.group
        records.append(
            {
                "group": number,
                "metric": group.metric,
                "mode": group.mode,
                "split": group.split,
                "reason": group.reason,
                "remedy": group.remedy,
                "notes": group.notes,
                "variants": list(map(_variant_record, conclusion.variants)),
                "baselines": fold_baselines.records(group, conclusion.variants),
                "verdict": conclusion.sentences,
                "caveats": conclusion.caveats,
                "remarks": conclusion.remarks,
            }
        )
    return records


def as_csv(table: Sequence[dict[str, Any]]) -> str:
    """Return rows as comma-separated values, with a header; None is an empty cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def in_order(found: Sequence[Conclusion], sort: str | None) -> Iterator[tuple[int, Conclusion, list[Entry]]]:
    """Yield each group's number, from 1, with its runs in order: by the key `sort`, otherwise the best first."""
    name, key = "final", "name"
    if sort is not None:
        name = sort.removeprefix("-")
    if name not in ("final", "best", "run"):
        # Over the runs of all groups, since a key need not be known in each.
        key = resolved(all_entries(found), name, f"--sort {sort}")
    for number, conclusion in enumerate(found, 1):
        group = conclusion.group
        descending = group.mode == "max" if sort is None else sort.startswith("-")
        value_of = partial(value, key=key)
        if name in ("final", "best"):
            value_of = methodcaller("metric", group.metric, checkpoint=name)
        entries = ordered(group.entries, list(map(value_of, group.entries)), descending=descending)
        yield number, conclusion, entries


def _variant_record(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "runs": [entry.name for entry in variant.entries],
        "values": list(variant.values),
        "mean": variant.mean,
        "sd": variant.sd,
        "interval": variant.interval and list(variant.interval),
        "costs": variant.costs,
    }
